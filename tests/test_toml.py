"""TOML into structs: every fault with its key, what was expected and what was found."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from toolkit.toml import TomlError, parse_toml, read_toml


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int
    share: float = 1.0


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: Literal["round", "square"] = "round"
    inner: Inner | None = None
    inners: dict[str, Inner] = {}
    ends: dict[Literal["left", "right"], str] = {}
    tags: tuple[str, ...] = ()
    free: dict[str, Any] = {}
    source: str = msgspec.field(name="from", default="")


def test_a_file_without_faults() -> None:
    content = (
        '\ufeffname = "a"\ntags = ["x"]\nfrom = "f"\n[inner]\nsize = 1\n[ends]\nleft = "l"\n[free]\nany = [1, "a"]\n'
    )
    assert read_toml(content.encode(), Outer) == Outer(
        name="a", inner=Inner(1), ends={"left": "l"}, tags=("x",), free={"any": [1, "a"]}, source="f"
    )


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        ("", ["name: missing"]),
        ("nmae = 'a'", ["nmae: unknown key; did you mean name?"]),
        (
            "name = 'a'\nzzz = 1",
            ["zzz: unknown key; expected one of name, kind, inner, inners, ends, tags, free, from"],
        ),
        ("name = 'a'\nfrm = 'x'", ["frm: unknown key; did you mean from?"]),
        ("name = 1", ["name: expected text, found 1"]),
        ("name = true", ["name: expected text, found true"]),
        ("name = ['a']", ["name: expected text, found a list of 1"]),
        ("name = 2020-01-01", ["name: expected text, found 2020-01-01"]),
        ("name = 'a'\nkind = 'oval'", ["kind: expected one of 'round', 'square', found 'oval'"]),
        ("name = 'a'\ninner = 3", ["inner: expected a table, found 3"]),
        ("name = 'a'\ninner = {size = '1'}", ["inner.size: expected a whole number, found '1'"]),
        ("name = 'a'\ninner = {size = 1.5}", ["inner.size: expected a whole number, found 1.5"]),
        ("name = 'a'\ninner = {size = 1, share = 'x'}", ["inner.share: expected a number, found 'x'"]),
        ("name = 'a'\ninners = {b = {sise = 1}}", ["inners.b.sise: unknown key; did you mean size?"]),
        ('name = "a"\n[inners."<|x|>"]\n', ['inners."<|x|>".size: missing']),
        ("name = 'a'\nends = {lefft = 'x'}", ["ends.lefft: unknown key; did you mean left?"]),
        ("name = 'a'\nends = {left = 1}", ["ends.left: expected text, found 1"]),
        ("name = 'a'\nends = 'x'", ["ends: expected a table, found 'x'"]),
        ("name = 'a'\ntags = 'x'", ["tags: expected a list, found 'x'"]),
        ("name = 'a'\ntags = ['x', 2]", ["tags[1]: expected text, found 2"]),
        ("tags = 1\nnmae = 'x'", ["nmae: unknown key; did you mean name?", "tags: expected a list, found 1"]),
        (f"name = 'a'\nkind = '{'x' * 500}'", [f"kind: expected one of 'round', 'square', found '{'x' * 78}…"]),
    ],
)
def test_each_fault_names_its_key(content: str, faults: list[str]) -> None:
    with pytest.raises(TomlError) as caught:
        read_toml(content.encode(), Outer)
    assert list(caught.value.faults) == faults


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name = ", "not TOML: invalid value"),
        (b"name = 'a'\nname = 'b'", "not TOML: cannot overwrite a value"),
        (b"name = '\xff'", r"not UTF-8: byte 8 is b'\xff'"),
        (b"name = '\0'", "not TOML: "),
        (b"a = " + b"[" * 100_000, "expected tables and lists in at most 32 levels"),
        (b"a = " + b"[" * 40 + b"]" * 40, "expected tables and lists in at most 32 levels"),
        (b"a" + b".a" * 500 + b" = 1", "expected tables and lists in at most 32 levels"),
        (b"a = " + b"9" * 5_000, "not TOML: exceeds the limit"),
        (b"#" * ((4 << 20) + 1), "expected at most 4,194,304 bytes, found 4,194,305"),
    ],
)
def test_what_is_no_toml_or_too_much_of_it(content: bytes, says: str) -> None:
    with pytest.raises(TomlError) as caught:
        parse_toml(content)
    assert str(caught.value).startswith(says)
    assert len(str(caught.value)) < 300


def test_depth_is_bounded_and_not_forbidden() -> None:
    assert parse_toml(b"a = " + b"[" * 30 + b"]" * 30)
