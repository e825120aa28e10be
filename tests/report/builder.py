"""Verdicts for tests: a passing one, a failing one, and one in which everything is hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolkit.records import (
    Accounting,
    ExpectationResult,
    LiveShard,
    ProviderSummary,
    Severity,
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
            failures_by_reason={"http_429": 12, "no_choices": 5},
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
                convention="unknown",
                convention_support=0,
            ),
        ),
        "evidence": {"engine": 1746, "counted": 1436, "unverified": 11, "contradicted": 190},
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
    """Everything that is there is right, but prompts are unanswered and replies not sealed."""
    verdict = passing_verdict()
    accounting = replace(verdict.accounting, unanswered=117, unsealed=40, rows=3383, asked=3517)
    reasons = ("117 of 3,517 prompts are unanswered", "40 replies in the journal are not sealed")
    fields: dict[str, Any] = {"accounting": accounting, "complete": False, "reasons": reasons}
    return replace(verdict, **fields | changes)


def hostile_verdict(text: str) -> Verdict:
    """A failing verdict in which every string that can come from outside is `text`."""
    example = {"sample_id": text, "turn": text, "sample_index": 0, "value": text}
    nested = {"sample_id": "s", "turn": 0, "sample_index": 0, "value": {text: [text, None, 10**5000]}}
    worst = failing_result(
        text, type=text, kwargs={text: text}, description=text, observed=text, error=text, examples=(example, nested)
    )
    return failing_verdict(
        dataset=text,
        created_at=text,
        tool_version=text,
        contract=text,
        contract_sha256=text,
        shards=(LiveShard(path=text, sha256=text, rows=1),),
        suites=(
            suite(worst, result(text, unexpected_count=1), result(text), name=text, path=text, sha256=text),
            suite(replace(worst, severity=Severity.WARNING), name=text),
        ),
        accounting=Accounting(
            asked=5, rows=3383, answered=4, failed=1, unanswered=1, unsealed=1, failures_by_reason={text: 1}
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
                difference_counts={text: 1},
            ),
        ),
        evidence={text: 4, "contradicted": 2},
        statuses={text: 1},
        notes={text: 1},
        nulls={text: 1},
        quarantined_by_reason={text: 201},
        quarantine_sha256=text,
        unreadable=(text,),
        complete=False,
        reasons=(text,),
    )
