"""The shipped suites: each is what the template and its contract make, reads, and closes the gate where it must."""

from __future__ import annotations

import json

import pytest

from toolkit.audit.suite import read_suite, shipped_suite
from toolkit.contract import read_contract, shipped_contracts

from .suites import TEMPLATE, path_of, suite_of


@pytest.mark.parametrize("name", shipped_contracts())
def test_a_suite_is_what_the_template_and_the_contract_make(name: str) -> None:
    """Where this fails, somebody changed a suite: `python scripts/suites.py` writes all from that of Kimi-K2.5."""
    assert path_of(name).read_text(encoding="utf-8") == suite_of(read_contract(name))


@pytest.mark.parametrize("name", shipped_contracts())
def test_a_suite_reads_and_says_only_what_its_contract_has(name: str) -> None:
    contract = read_contract(name)
    suite = read_suite(shipped_suite(name))
    assert suite.name == name
    assert len(suite.expectations) >= 45
    text = json.dumps(json.loads(path_of(name).read_text(encoding="utf-8")), ensure_ascii=False)
    if name != TEMPLATE:
        foreign = set(read_contract(TEMPLATE).special) - set(contract.special)
        assert [spelling for spelling in foreign if spelling in text] == []
        assert "163840" not in text or contract.vocab_size == 163840
    if contract.think is None:
        assert "_think" not in text


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("qwen3", {"begin_think_once", "begin_think_absent", "instant_without_think", "thinking_closed"}),
        ("glm-4.5", {"begin_think_once", "begin_think_absent", "instant_without_think", "thinking_closed"}),
        ("glm-4.7", {"begin_think_absent", "instant_without_think", "thinking_closed"}),
        ("deepseek-r1", {"begin_think_absent", "thinking_closed"}),
        ("deepseek-v3", set()),
    ],
)
def test_what_is_expected_of_thinking(name: str, ids: set[str]) -> None:
    about = {"begin_think_once", "begin_think_absent", "instant_without_think", "thinking_closed"}
    assert {e.id for e in read_suite(shipped_suite(name)).expectations} & about == ids
