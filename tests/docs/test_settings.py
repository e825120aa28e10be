"""The page of settings has every key, no other, and the defaults that the code has."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.conftest import ROOT
from toolkit.config import BudgetSettings, DatasetSettings, parse_settings
from toolkit.endpoint import EndpointSettings, Routing
from toolkit.mix import MaskSettings, MergeSettings, Share
from toolkit.records import SAMPLING_KEYS

PAGE = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
TABLES: dict[str, type[msgspec.Struct]] = {
    "`[datasets.NAME]`, and `[defaults]` for all of them": DatasetSettings,
    "`[endpoints.NAME]`": EndpointSettings,
    "`[budget]`": BudgetSettings,
    "`[merge]`": MergeSettings,
}


def test_there_are_no_other_tables() -> None:
    assert set(SECTIONS) == set(TABLES)


@pytest.mark.parametrize(("title", "kind"), TABLES.items())
def test_each_key_stands_there_with_its_default(title: str, kind: type[msgspec.Struct]) -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", SECTIONS[title], re.MULTILINE))
    fields = {field.name: field for field in msgspec.structs.fields(kind) if field.name != "name"}
    assert list(told) == list(fields)
    for name, field in fields.items():
        if isinstance(field.default, str | int | float) and field.default not in (0, ""):
            first = told[name].partition(";")[0].strip('`"')
            assert first == (str(field.default).lower() if isinstance(field.default, bool) else f"{field.default:g}"
                             if isinstance(field.default, float) else str(field.default)), name  # fmt: skip


@pytest.mark.parametrize("keys", [SAMPLING_KEYS, *(k.__struct_fields__ for k in (Routing, Share, MaskSettings))])
def test_keys_of_inner_tables_stand_there(keys: tuple[str, ...]) -> None:
    assert [key for key in keys if f"`{key}`" not in PAGE] == []


def test_the_example_is_taken() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    settings = parse_settings(example.encode(), "docs/settings.md")
    assert settings.dataset("B3").sampling == {"temperature": 1.0, "top_p": 0.95}
    assert settings.dataset("CHAT").mode == "thinking"
    assert settings.endpoint("local").api == "generate"
