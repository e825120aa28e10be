"""Verdicts for tests: a passing one, a failing one, and one in which everything is hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolkit.findings import (
    AlterationFound,
    Calibration,
    CalibrationClass,
    Finding,
    History,
    Learned,
    ProbeComparison,
    ProviderFacts,
)
from toolkit.records import (
    Accounting,
    ExpectationResult,
    LiveShard,
    ProviderSummary,
    Severity,
    Standing,
    SuiteRun,
    Verdict,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=http://evil.example/x onerror=alert(1)>",
    "[bold red]x[/bold red] [link=http://evil.example]y[/link] :smile:",
    "\x1b]0;owned\x07\x1b[2J\x9b31m",
    "\u202eexe.txt\u2066\u200b\u200d\ufeff",
    "\ud800 lone \udfff",
    "a\nb\r\nc\td\u2028e\x00\x0b\ufffe",
    "| `code` || ``` | @torvalds #1 www.evil.example https://evil.example a@b.example",
    "![x](http://evil.example/y.png) [z](javascript:alert(1)) **b** &lt; &amp; ]]>",
    "漢字" * 60,
    "z\u0301\u0302\u0303\u0304\u0305\u0306\u0307" * 20,
    "x" * 1_000_000,
    "",
)
"""Strings that a model or a server may send as any name, id or value."""


def result(id_: str = "terminal_last", **changes: Any) -> ExpectationResult:
    """A row expectation that holds for all of 3,383 rows."""
    fields: dict[str, Any] = {
        "id": id_,
        "type": "expect_column_values_to_be_in_set",
        "severity": Severity.CRITICAL,
        "scope": "row",
        "success": True,
        "kwargs": {"column": "last_id", "value_set": [163586]},
        "description": "A complete answer ends with the terminal id.",
        "mostly": 1.0,
        "element_count": 3383,
        "unexpected_count": 0,
    }
    return ExpectationResult(**fields | changes)


def failing_result(id_: str = "reencode_equal", **changes: Any) -> ExpectationResult:
    """41 of 3,383 rows fail, and three are shown."""
    fields: dict[str, Any] = {
        "success": False,
        "mostly": 0.999,
        "unexpected_count": 41,
        "description": "The row's text, encoded again with another engine, gives the same ids.",
        "fault": "Another engine makes other ids of the row's text.",
        "examples": (
            {"sample_id": "mc-00012", "turn": 0, "sample_index": 0, "value": False},
            {"sample_id": "mc-00077", "turn": 1, "sample_index": 0, "value": False},
            {"sample_id": "mc-01841", "turn": 0, "sample_index": 2, "value": None},
        ),
    }
    return result(id_, **fields | changes)


def provider(name: str | None, **changes: Any) -> ProviderSummary:
    """A line of the table; without a name it is the local server's."""
    fields: dict[str, Any] = {
        "source": "sglang" if name is None else "openrouter",
        "provider": name,
        "rows": 1746,
        "quarantined": 0,
        "ids": 1_204_511,
        "completion_tokens": 1_204_511,
        "cost_usd": 0.0,
        "truncated": 3,
        "evidence": {"engine": 1746},
        "convention": "every id",
        "convention_support": 1746,
        "prompt_offset": 0,
        "difference_counts": {"0": 1746},
        "median_ids": 612.0,
    }
    return ProviderSummary(**fields | changes)


def suite(*results: ExpectationResult, **changes: Any) -> SuiteRun:
    fields: dict[str, Any] = {
        "name": "default",
        "path": "expectations/default.json",
        "sha256": "5e" * 32,
        "max_quarantined_share": 0.05,
        "results": results,
        "standing": Standing.EDITED,
    }
    return SuiteRun(**fields | changes)


def passing_verdict(**changes: Any) -> Verdict:
    """B3 with all rows in order; one expectation tolerates two rows, one warning is raised."""
    fields: dict[str, Any] = {
        "dataset": "B3_magicoder",
        "created_at": "2026-03-14T09:26:53Z",
        "tool_version": "0.1.0",
        "kernel_version": 1,
        "contract": "kimi-k2.5",
        "contract_sha256": "c0" * 32,
        "shards": (
            LiveShard(path="datasets/B3_magicoder/shards/part-000.parquet", sha256="a1" * 32, rows=2000),
            LiveShard(path="datasets/B3_magicoder/shards/part-001.parquet", sha256="b2" * 32, rows=1383),
        ),
        "suites": (
            suite(
                result("terminal_last"),
                result("one_end_think", description="Thinking ends exactly once."),
                result("no_control_ids", description="No special id that belongs in no completion."),
                result("evidence_known", mostly=0.99, unexpected_count=2, description="Ids are known to be right."),
                result(
                    "row_count",
                    type="expect_table_row_count_to_be_between",
                    scope="dataset",
                    mostly=None,
                    element_count=None,
                    unexpected_count=None,
                    observed="3383",
                    success_after_quarantine=True,
                    description="There are rows.",
                    kwargs={"min_value": 1},
                ),
                failing_result(
                    "replacement_chars",
                    severity=Severity.WARNING,
                    unexpected_count=12,
                    description="No U+FFFD in the text.",
                ),
            ),
        ),
        "rows": 3383,
        "ids": 2_310_877,
        "accounting": Accounting(
            asked=3400,
            rows=3383,
            answered=3383,
            failed=17,
            unanswered=0,
            unsealed=0,
            failures_by_reason={"http_400": 12, "no_choices": 5},
            failed_by_reason={"http_400": 12, "no_choices": 5},
        ),
        "sources": {"openrouter": 1637, "sglang": 1746},
        "origins": {"generate": 3383},
        "providers": (
            provider(None),
            provider("Chutes", rows=1325, evidence={"counted": 1325}, convention_support=1325, cost_usd=3.2),
            provider(
                "Inceptron",
                rows=312,
                evidence={"counted": 310, "unverified": 2},
                evidence_reasons={"no_count": 2},
                convention="all but the terminal",
                convention_support=310,
                prompt_offset=7,
                quarantined=2,
                cost_usd=0.81,
                difference_counts={"1": 310, "2": 2},
            ),
        ),
        "evidence": {"engine": 1746, "counted": 1635, "unverified": 2, "contradicted": 0, "logprobs": 0},
        "statuses": {"complete": 3371, "truncated": 12},
        "notes": {"tool_id_rewritten": 14, "mode_assumed": 3},
        "nulls": {"reasoning": 0, "content": 12, "tool_calls": 3300, "completion_tokens": 0},
        "quarantined": 2,
        "quarantined_by_reason": {"evidence_known": 2},
        "quarantine_sha256": "d4" * 32,
        "unreadable": (),
        "complete": True,
        "passed": True,
        "reasons": (),
        "measured_shards": 2,
        "elapsed_s": 4.2,
        "contract_standing": Standing.SHIPPED,
        "allowed_providers": ("Chutes", "Inceptron"),
        "evidence_reasons": {"no_count": 2},
        "left_out": {"quarantined": 2},
    }
    return Verdict(**fields | changes)


def failing_verdict(**changes: Any) -> Verdict:
    """The same dataset after Inceptron began to alter tool calls."""
    verdict = passing_verdict()
    run = suite(
        failing_result(),
        failing_result(
            "evidence_known",
            mostly=0.99,
            unexpected_count=201,
            description="Ids are known to be right: engine, logprobs or counted.",
        ),
        failing_result(
            "prompt_agrees",
            severity=Severity.WARNING,
            unexpected_count=5,
            description="prompt_tokens agrees with the rendered prompt.",
            examples=(),
        ),
        *(held for held in verdict.suites[0].results if held.id != "evidence_known"),
    )
    fields: dict[str, Any] = {
        "suites": (run,),
        "providers": (
            *verdict.providers[:2],
            replace(
                verdict.providers[2],
                quarantined=200,
                evidence={"counted": 111, "contradicted": 190, "unverified": 11},
                evidence_reasons={"count": 190, "convention_unknown": 11},
                convention="unknown",
                convention_support=0,
            ),
        ),
        "evidence": {"engine": 1746, "counted": 1436, "unverified": 11, "contradicted": 190},
        "evidence_reasons": {"count": 190, "convention_unknown": 11},
        "left_out": {"quarantined": 201},
        "quarantined": 201,
        "quarantined_by_reason": {"evidence_known": 201, "reencode_equal": 41},
        "passed": False,
        "reasons": (
            "evidence_known: 201 of 3,383 rows fail (5.9 %), at most 1 % may",
            "reencode_equal: 41 of 3,383 rows fail (1.2 %), at most 0.1 % may",
            "201 of 3,383 rows are in quarantine (5.9 %), at most 5 % may be",
        ),
    }
    return replace(verdict, **fields | changes)


def incomplete_verdict(**changes: Any) -> Verdict:
    """Everything that is there is right, but answers are missing and replies not sealed: as the audit writes it."""
    verdict = passing_verdict()
    accounting = replace(
        verdict.accounting,
        unanswered=117,
        unsealed=40,
        rows=3383,
        asked=3517,
        failures_by_reason={"http_400": 12, "no_choices": 5, "http_429": 3, "id_conflict": 1},
        repeated_by_reason={"http_429": 3},
        lines_by_reason={"id_conflict": 1},
        missing=(("mc-3384", 0, 0), ("mc-3385", 0, 1), *((f"mc-{n}", 0, 0) for n in range(3386, 3404))),
    )
    fields: dict[str, Any] = {"accounting": accounting, "complete": False}
    return replace(verdict, **fields | changes)


def provider_line(who: str | None, **changes: Any) -> ProviderFacts:
    """A line of the providers table in thinking mode; without a name it is the local server's."""
    fields: dict[str, Any] = {
        "name": "sglang" if who is None else f"openrouter/{who}", "provider": who, "mode": "thinking",
        "source": "sglang" if who is None else "openrouter", "rows": 1325, "share": 0.39, "models": 1,
        "foreign_model_rows": 0, "not_allowed_rows": 0, "proved_share": 1.0, "unverified_share": 0.0,
        "contradicted_share": 0.0, "finish_rows": 1325, "length_share": 0.021, "length_gap": 0.001, "length_z": 0.2,
        "tool_calls_share": 0.3, "tool_calls_gap": 0.0, "tool_calls_z": 0.0, "measured_rows": 1325,
        "other_rows": 2058, "median_ids": 611.5, "median_ratio": 1.0, "ks_distance": 0.034, "ks_p": 0.3,
        "empty_reasoning_share": 0.0, "empty_answer_share": 0.0, "marker_rows": 0, "tool_rows": 390,
        "schema_ok_rows": 388, "schema_lower": 0.9815, "schema_upper": 0.9986, "tool_id_faults": 0,
        "trigger_reference": None, "trigger_prompts": 0, "trigger_calls": 0, "trigger_f1": None, "usage_rows": 1325,
        "usage_drift_share": 0.0, "convention_changes": 0, "cost_per_million_usd": 2.41, "latency_p50_s": 11.0,
        "latency_p95_s": 42.4,
    }  # fmt: skip
    return ProviderFacts(**fields | changes)


def learned(text: str | None = None) -> Learned:
    """One of everything that is learned; `text` stands for every string that comes from outside."""
    provider, says = text or "Chutes", text or "completion_tokens: from here on the provider counts every id"
    source, row, mode = text or "openrouter", text or "s60/0/0", text or "thinking"
    one = CalibrationClass(
        name=text or "code", rows=400, ids=9_000, differing=12, differing_low=0.017, differing_high=0.052, agreeing=395,
        wrong=7, wrong_low=0.009, wrong_high=0.036,
    )  # fmt: skip
    return Learned(
        alterations=(
            AlterationFound(
                source=source, provider=provider, model=text, mode=mode, code=text or "trims",
                says=text or "content that begins in white space", rows=300, hits=0, reference=text or "sglang",
                reference_share=0.123,
            ),
        ),
        findings=(
            Finding(code=text or "share_changed", severity="info", says=text or "answers cut at the cap", rows=9),
            Finding(
                code=text or "completion_convention_changed", severity="warning", says=says, source=source,
                provider=provider, shard=text, row=row, created=1, rows=40,
            ),
        ),
        calibration=Calibration(says=text or "of 395 engine rows whose count agrees …", left_out=1, classes=(one,)),
        probes=(
            ProbeComparison(
                source=source, provider=provider, probe_source=text or "sglang", probe_provider=text, mode=mode,
                pairs=40, exact=10, first_difference=17.0, length_ratio=1.25,
            ),
        ),
        providers=(provider_line(None), provider_line(provider, name=text or "openrouter/Chutes", mode=mode)),
        history=History(own=5, foreign=2, given=1),
        left_off={"providers": 3},
    )  # fmt: skip


def hostile_verdict(text: str, *, damaged: bool = False) -> Verdict:
    """A failing verdict in which every string that can come from outside is `text`."""
    example = {"sample_id": text, "turn": text, "sample_index": 0, "value": text}
    nested = {"sample_id": "s", "turn": 0, "sample_index": 0, "value": {text: [text, None, 10**5000]}}
    worst = failing_result(
        text, type=text, kwargs={text: text}, description=text, fault=text, observed=text, error=text,
        examples=(example, nested),
    )  # fmt: skip
    alike = [replace(worst, error=f"{text} again") for _ in range(3)]
    return failing_verdict(
        dataset=text,
        created_at=text,
        tool_version=text,
        contract=text,
        contract_sha256=text,
        shards=(LiveShard(path=text, sha256=text, rows=1),),
        suites=(
            suite(worst, result(text, unexpected_count=1), result(text), name=text, path=text, sha256=text),
            suite(replace(worst, severity=Severity.WARNING), *alike, name=text),
        ),
        accounting=Accounting(
            asked=7,
            rows=3383,
            answered=4,
            failed=1,
            unanswered=2,
            unsealed=1,
            failures_by_reason={text: 3},
            failed_by_reason={text: 1},
            repeated_by_reason={text: 1},
            lines_by_reason={text: 1},
            missing=((text, 0, 0), (text, 1, 2)),
        ),
        sources={text: 3383},
        origins={text: 3383},
        providers=(
            provider(
                text,
                source=text,
                convention=text,
                quarantined=4,
                evidence={text: 4, "contradicted": 2},
                evidence_reasons={text: 2},
                difference_counts={text: 1},
            ),
        ),
        evidence={text: 4, "contradicted": 2},
        statuses={text: 1},
        notes={text: 1},
        nulls={text: 1},
        quarantined_by_reason={text: 201},
        quarantine_sha256=text,
        unreadable=(text,) if damaged else (),
        allowed_providers=(text, text),
        evidence_reasons={text: 2},
        left_out={text: 3},
        learned=learned(text),
        complete=False,
        reasons=(text,),
    )
