"""What an audit learned, from shards to verdict.json, and that a merge does not believe an edited one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolkit.audit.drift import find_drift
from toolkit.audit.learned import learned_from
from toolkit.audit.providers import provider_table
from toolkit.audit.suite import shipped_suite
from toolkit.contract import Contract
from toolkit.errors import GateClosed
from toolkit.findings import Learned
from toolkit.rows import RowBuilder
from toolkit.store.listing import seal_rows
from toolkit.store.verdicts import read_verdict
from toolkit.vocabulary import Vocabulary

from .facts import fact, judged_of, numbered
from .shard_rows import engine_row, row
from .workspace import Bench, answers, make_bench

END_THINK, END = 163607, 163586


def learned_of(contract: Contract, rows: list[dict[str, Any]]) -> Learned:
    judged = judged_of(contract, rows)
    drift = find_drift(judged.facts, contract)
    return learned_from(judged, drift, provider_table(judged.facts, contract, drift), [])


def test_conventions_come_with_what_speaks_for_and_against_them(kimi: Contract) -> None:
    cut = {"truncated": True, "rebuild_status": "truncated", "n_terminal": 0}
    found = learned_of(kimi, numbered([*[fact(count=1)] * 30, *[fact(**cut)] * 30]))
    (convention,) = found.conventions
    count = convention.completion
    assert (convention.provider, count.name, count.rows, count.support) == ("Chutes", "leaves out the terminal", 60, 60)
    assert 0.93 < count.confidence < 1
    assert count.same == ("leaves out the terminal and the tool markers",)
    rivals = {rival.name: (rival.rows, rival.examples) for rival in count.excluded}
    assert rivals["counts every id"] == (30, ("s0/0/0", "s1/0/0", "s2/0/0"))
    assert convention.reasoning.why == "no rows to compare"


def test_alterations_and_shapes_are_kept(kimi: Contract) -> None:
    spaced = [fact(provider="Parasail", content_leading_space=i % 3 == 0) for i in range(300)]
    found = learned_of(kimi, numbered([*[fact()] * 200, *spaced]))
    (alteration,) = found.alterations
    assert (alteration.provider, alteration.code, alteration.rows, alteration.hits) == ("Chutes", "trims", 200, 0)
    assert alteration.reference == "openrouter/Parasail"
    tools = {"n_tool_calls": 2, "n_tool_markers": 8}
    (convention,) = learned_of(kimi, numbered([*[fact()] * 200, *[fact(count=1, **tools)] * 30])).conventions
    assert [(s.mode, s.truncated, s.calls, s.count.name) for s in convention.shapes] == [
        ("thinking", False, True, "leaves out the terminal")
    ]


@pytest.mark.parametrize(
    ("rows", "code", "count", "first"),
    [
        ([fact(turn=1, history_hashes=[1])], "off_policy_history", 1, "s0/1/0"),
        ([fact(), fact(history_hashes=[1])], "given_history", 1, "s1/0/0"),
        ([fact(source="sglang", provider=None)], "engine_rows_without_ids", 1, "s0/0/0"),
        ([fact(source="vllm", provider=None, ids_source=None, n_ids=None)], "engine_rows_without_ids", 1, "s0/0/0"),
    ],
)
def test_findings_about_rows(kimi: Contract, rows: list[dict[str, Any]], code: str, count: int, first: str) -> None:
    (found,) = learned_of(kimi, numbered(rows)).findings
    assert (found.code, found.rows, found.row) == (code, count, first)


def test_an_identity_that_stands_twice(kimi: Contract) -> None:
    found = learned_of(kimi, [fact(), fact(), fact(probe=True), fact(sample_id="t")]).findings
    assert [(f.code, f.rows) for f in found] == [("identity_twice", 2)]


def test_good_rows_have_no_findings(kimi: Contract) -> None:
    engine = fact(source="sglang", provider=None, ids_source="engine")
    assert learned_of(kimi, numbered([*[fact()] * 200, *[engine] * 200])).findings == ()


# --- the whole way ------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    """Twenty rows of Chutes and the suite of the test, with the shipped providers suite."""
    made = make_bench(tmp_path, vocabulary, bad=())
    made.suites.append(shipped_suite("providers"))
    return made


def test_the_providers_suite_stands_in_the_verdict_and_the_gate(bench: Bench) -> None:
    verdict = bench.audit()
    rows, providers = verdict.suites
    assert (providers.name, providers.standing) == ("providers", "shipped")
    assert {result.scope for result in providers.results} == {"dataset"}
    assert all(result.success_after_quarantine for result in providers.results)
    assert verdict.passed
    assert rows.name == "small"
    assert [line.name for line in verdict.learned.providers] == ["openrouter/Chutes"]
    assert read_verdict(bench.dataset.verdict) == verdict
    bench.gate()


def test_a_provider_that_is_not_on_the_list_closes_the_gate(bench: Bench) -> None:
    bench.providers = ("Parasail",)
    verdict = bench.audit()
    assert not verdict.passed
    assert any(
        reason.startswith("provider_on_list: A provider that is not on the dataset's allow list gave rows")
        and reason.endswith("(found openrouter/Chutes (thinking): 20)")
        for reason in verdict.reasons
    )


@pytest.mark.parametrize("what", ["providers", "findings"])
def test_an_edited_finding_does_not_pass(bench: Bench, what: str) -> None:
    learned = bench.audit().learned
    edited = replace(learned, providers=(replace(learned.providers[0], ks_distance=0.0),))
    edited = edited if what == "providers" else replace(learned, left_off={"findings": 1})
    bench.rewrite(learned=edited)
    with pytest.raises(GateClosed, match="the verdict's learned are not what its facts give"):
        bench.gate()


def test_probes_are_read_in_a_second_pass(bench: Bench, kimi: Contract, vocabulary: Vocabulary) -> None:
    assert bench.audit().learned.probes == ()
    builder = RowBuilder(kimi, vocabulary)
    ids = [answer["output_ids"] for answer in answers(builder, 2)]
    message = [{"reasoning": f"So {n}.", "content": f"It is {n}."} for n in range(2)]
    again = [
        engine_row(builder, message[0], ids[0], sample_id="s0", probe=True),
        engine_row(builder, message[1], [ids[1][0] + 1, *ids[1][1:]], sample_id="s1", probe=True),
        row(builder, message[0], sample_id="alone", probe=True, usage=None),
    ]
    seal_rows(bench.dataset, again, contract=kimi.name)
    bench.accounting = replace(bench.accounting, rows=23)
    (found,) = bench.audit().learned.probes
    assert (found.source, found.provider, found.probe_source) == ("openrouter", "Chutes", "sglang")
    assert (found.pairs, found.exact, found.first_difference, found.length_ratio) == (2, 1, 0.0, 1.0)
    bench.gate()
