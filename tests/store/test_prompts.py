"""prompts.jsonl: what is refused, that a check costs little, and that what is read later is what was checked."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import PromptsError
from toolkit.records import Prompt
from toolkit.store import prompts as module
from toolkit.store.prompt_lines import parse_prompt, plain_id
from toolkit.store.prompts import PromptIndex, check_prompts, read_prompts

MODES = ("thinking", "instant")
USER = [{"role": "user", "content": "hi"}]


def write(path: Path, *lines: bytes | dict, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + end for line in lines))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


def check(path: Path) -> PromptIndex:
    return check_prompts(path, modes=MODES)


def faults_of(path: Path) -> list[str]:
    with pytest.raises(PromptsError) as caught:
        check(path)
    return [fault.removeprefix("prompts.jsonl: ") for fault in caught.value.faults]


# --- reading ----------------------------------------------------------------------------------------


def test_an_index_gives_the_prompts_in_order_by_position_and_by_id(path: Path):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    write(path, {"id": "a", "messages": USER}, b"  ", {"id": "b", "messages": USER, "tools": tools, "max_tokens": 5})
    index = check(path)
    expected = [
        Prompt(id="a", messages=USER, line=1),
        Prompt(id="b", messages=USER, tools=tools, max_tokens=5, line=3),
    ]
    assert (len(index), list(index), list(index)) == (2, expected, expected)
    assert [index.read(0), index.read(1)] == expected == read_prompts(path, modes=MODES)
    assert (index.find("b"), index.find("c")) == (expected[1], None)
    with pytest.raises(IndexError):
        index.read(2)


def test_a_line_without_an_id_gets_one_that_follows_from_what_it_asks(path: Path):
    first, second = {"messages": USER}, {"messages": [{"role": "user", "content": "ho"}], "mode": "instant"}
    there = {prompt.messages[0]["content"]: prompt.id for prompt in check(write(path, first, second))}
    moved = {prompt.messages[0]["content"]: prompt.id for prompt in check(write(path, second, first))}
    assert there == moved
    assert all(name.startswith("sha256-") for name in there.values())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n \r\n"])
def test_line_ends_blank_lines_and_a_byte_order_mark_change_nothing(path: Path, end: bytes):
    write(path, {"id": "a", "messages": USER}, {"id": "ä", "messages": USER}, end=end)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().rstrip())
    assert [prompt.id for prompt in check(path)] == ["a", "ä"]


def test_prompts_that_lie_across_blocks_and_chunks_are_read_whole(path: Path):
    sizes = [10, 70_000, 65_400, 3, 1_200_000, 131_072, 5]
    texts = [chr(97 + i) * size for i, size in enumerate(sizes)]
    index = check(write(path, *({"messages": [{"role": "user", "content": text}]} for text in texts)))
    assert [prompt.messages[0]["content"] for prompt in index] == texts
    assert [index.read(i).messages[0]["content"] for i in (4, 0, 6, 1)] == [texts[i] for i in (4, 0, 6, 1)]


def test_an_index_holds_little_and_iterating_reads_as_it_goes(path: Path):
    count = 20_000
    write(path, *({"id": f"p{i}", "messages": [{"role": "user", "content": "x" * 200}]} for i in range(count)))
    tracemalloc.start()
    try:
        index = check(path)
        held = tracemalloc.get_traced_memory()[0]
        assert held / count <= 32
        tracemalloc.reset_peak()
        assert sum(1 for _ in index) == count
        assert tracemalloc.get_traced_memory()[1] - held < 1_000_000
    finally:
        tracemalloc.stop()


# --- the file that was checked ------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_time", [True, False])
def test_a_prompt_that_was_changed_after_the_check_is_never_given_out(path: Path, keeps_time: bool):
    texts = ["x" * 70_000, "y" * 70_000, "z" * 70_000]
    index = check(write(path, *({"id": t[0], "messages": [{"role": "user", "content": t}]} for t in texts)))
    there = path.stat()
    path.write_bytes(path.read_bytes().replace(b"zzz", b"abc", 1))
    if keeps_time:
        os.utime(path, ns=(there.st_atime_ns, there.st_mtime_ns))
    read = iter(index)
    assert next(read).id == "x"
    with pytest.raises(PromptsError, match=r"prompts.jsonl: was changed after it was checked: other content between"):
        list(read)
    with pytest.raises(PromptsError, match="was changed"):
        index.read(2)


def test_a_file_that_grew_or_went_is_not_the_one_that_was_checked(path: Path):
    index = check(write(path, {"id": "a", "messages": USER}))
    with path.open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(PromptsError, match="expected 61 bytes, found 64"):
        list(index)
    path.unlink()
    with pytest.raises(PromptsError, match="cannot be read any more"):
        index.read(0)


# --- faults -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"nonsense", "not JSON"),
        (b'{"messages": [', "not JSON"),
        (b"\0" * 100, "not JSON"),
        (b'{"messages": NaN}', "not JSON: NaN"),
        (b"[" * 5000 + b"]" * 5000, "not JSON: nested too deeply"),
        (b"[]", "expected an object, found list"),
        (b'\xef\xbb\xbf{"messages": []}', "a byte order mark"),
        (b'{"messages": "\xff"}', "not UTF-8 at byte 14"),
        ({"messages": []}, "messages: expected a list of messages, found []"),
        ({"messages": USER, "mesages": 1}, "unknown key 'mesages'"),
        ({"messages": USER, "id": ""}, "id: expected a string of 1 to 256 characters, found ''"),
        ({"messages": USER, "id": 7}, "id: expected a string of 1 to 256 characters, found 7"),
        ({"messages": USER, "mode": "deep"}, "mode: expected one of instant, thinking, found 'deep'"),
        ({"messages": USER, "mode": ["thinking"]}, "mode: expected one of"),
        ({"messages": USER, "max_tokens": True}, "max_tokens: expected a whole number from 1, found True"),
        ({"messages": USER, "max_tokens": 2**31}, "max_tokens"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "a lone surrogate"),
        (b'{"messages": [{"role":"user","content":"x"}], "meta": 1e999}', "a number is larger"),
        (b'{"messages": [{"role":"user","content":"x","role":"user"}]}', "key 'role' is written twice in one object"),
        (b'{"messages": [{"role":"user","content":"x","rol\\u0065":"user"}]}', "key 'role' is written twice"),
        (b'{"messages": [{"role":"user","content":"x","role" : "user"}]}', "key 'role' is written twice"),
        (b'{"id":"a","id":"b","messages":[{"role":"user","content":"\\":"}]}', "key 'id' is written twice"),
        (b'{"messages":[{"role":"user","content":"x"}],"meta":{"a":{"b":1,"b":1}}}', "key 'b' is written twice"),
        ({"messages": [*USER, {"role": "assistant", "content": "x"}]}, "expected the last one from user or tool"),
        ({"messages": [*USER, {"role": "system", "content": "x"}, *USER]}, "system after user"),
        ({"messages": [{"role": "assistant", "content": "x"}, *USER]}, "assistant after start"),
        ({"messages": [{"role": "user"}]}, "messages[0].content: expected a string or text parts, found nothing"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role: expected one of"),
        ({"messages": USER, "tools": {}}, "tools: expected a list"),
    ],
)  # fmt: skip
def test_a_faulty_line_is_named_with_what_is_wrong(path: Path, line: bytes | dict, words: str):
    assert plain_id(line if isinstance(line, bytes) else json.dumps(line).encode(), MODES) is None
    (fault,) = faults_of(write(path, {"messages": USER}, line))
    assert fault.startswith("line 2: ")
    assert words in fault
    assert len(fault) < 400


@pytest.mark.parametrize("key", ["id", "mode", "meta", "tools", "messages", "max_tokens"])
@pytest.mark.parametrize("depth", [260, 900, 1020])
def test_nesting_is_a_fault_wherever_it_is(path: Path, key: str, depth: int):
    line = b'{"messages": [{"role": "user", "content": "x"}], "%s": %s%s}' % (key.encode(), b"[" * depth, b"]" * depth)
    assert faults_of(write(path, line)) == ["line 1: expected JSON nested at most 250 levels deep"]


def test_a_line_beyond_all_measure_is_a_fault_and_is_never_held(path: Path):
    with path.open("wb") as file:
        file.write(b'{"id": "a", "messages": [{"role": "user", "content": "x"}]}\n')
        file.truncate(400 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\nnonsense\n")
    tracemalloc.start()
    try:
        faults = faults_of(path)
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()
    assert faults[0] == "line 2: expected at most 64 MiB in a line, found more"
    assert faults[1].startswith("line 3: not JSON")


def test_an_id_that_is_used_twice_is_named_with_both_lines_beside_other_faults(path: Path):
    write(path, {"id": "a", "messages": USER}, b"x", {"id": "b", "messages": USER}, b"", {"id": "a", "messages": USER})
    faults = faults_of(path)
    assert faults[0].startswith("line 2: not JSON")
    assert faults[1:] == ["line 5: id 'a' was used on line 1"]


def test_ids_are_told_apart_by_what_they_are_and_not_by_their_hash(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "hash_of", lambda _: 7)
    write(path, *({"id": name, "messages": USER} for name in ("a", "b", "c")))
    assert [prompt.id for prompt in check(path)] == ["a", "b", "c"]
    write(path, *({"id": name, "messages": USER} for name in ("a", "b", "a", "c", "b")))
    assert faults_of(path) == ["line 3: id 'a' was used on line 1", "line 5: id 'b' was used on line 2"]


def test_many_faults_are_all_counted_and_the_first_are_shown(path: Path):
    write(path, *[b"x"] * 20_000)
    with pytest.raises(PromptsError) as caught:
        check(path)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("prompts.jsonl: 20000 faults, nothing was sent")
    assert (len(lines), lines[-1]) == (52, "… and 19,950 more faults")
    assert len(caught.value.faults) == 10_000


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_a_file_without_prompts_is_refused(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(PromptsError, match="expected at least one prompt, found none"):
        check(path)


def test_a_missing_file_and_a_folder_are_told_as_such(path: Path):
    with pytest.raises(PromptsError, match="missing; write one JSON object a line"):
        check(path)
    path.mkdir()
    with pytest.raises(PromptsError, match="cannot be read: Is a directory"):
        check(path)


# --- the quick way and the thorough one -----------------------------------------------------------------

_TEXTS = st.text(st.sampled_from('a:" \\{}é\u2028\U0001f600'), max_size=6)
_MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": _TEXTS}),
    min_size=1, max_size=3,
)  # fmt: skip
_LINES = st.fixed_dictionaries(
    {"messages": _MESSAGES},
    optional={
        "id": _TEXTS, "mode": st.sampled_from(["thinking", "deep"]), "max_tokens": st.integers(0, 3),
        "meta": st.recursive(_TEXTS, lambda inner: st.dictionaries(_TEXTS, inner, max_size=2) | st.lists(inner)),
    },
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(_LINES, st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]), st.integers(0, 2**32))
def test_what_the_quick_check_lets_pass_the_thorough_one_does_too(value: dict, plain: bool, marks: tuple, seed: int):
    line = json.dumps(value, ensure_ascii=plain, separators=marks).encode()
    if seed % 3 == 0:
        # A key or a part of the line written twice.
        at, to = sorted(random.Random(seed).sample(range(len(line) + 1), 2))
        line = line[:to] + line[at:to] + line[to:]
    quick = plain_id(line, MODES)
    if quick is not None:
        prompt, faults = parse_prompt(line, 1, modes=MODES)
        assert faults == []
        assert prompt is not None
        assert prompt.id == quick
