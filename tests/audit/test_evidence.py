"""Evidence: conventions that are learned from rows, and what each row is worth under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from toolkit.audit.evidence import MIN_SUPPORT, judge
from toolkit.columns import FACTS_SCHEMA, JUDGED_COLUMNS, JUDGED_SCHEMA
from toolkit.contract import Contract, read_contract

ALL, TERMINAL, UNKNOWN = "counts every id", "leaves out the terminal", "unknown"
END_THINK, BOTH = "leaves out the end of thinking", "leaves out the terminal and the end of thinking"
EVERY, MARKERS = "leaves out the terminal, the end of thinking and the tool markers", "leaves out the tool markers"
BESIDE = "counts reasoning beside, and leaves out the terminal and the end of thinking"

N_IDS, N_PROMPT = 40, 21


def fact(*, count: int | None = 0, prompt: int | None = 0, **changes: Any) -> dict[str, Any]:
    """A whole thinking row of Chutes. `count`, `prompt`: ids that we have more than were reported; None: no report."""
    fields: dict[str, Any] = {
        "row_key": "k",
        "sample_id": "s",
        "turn": 0,
        "sample_index": 0,
        "probe": False,
        "source": "openrouter",
        "origin": "generate",
        "provider": "Chutes",
        "model": "moonshotai/kimi-k2.5",
        "mode": "thinking",
        "contract": "kimi-k2.5",
        "contract_sha256": "c",
        "ids_source": "rebuilt",
        "rebuild_status": "complete",
        "notes": [],
        "shard": "d",
        "row_index": 0,
        "n_ids": N_IDS,
        "n_prompt_ids": N_PROMPT,
        "n_terminal": 1,
        "n_end_think": 1,
        "n_tool_calls": 0,
        "n_tool_markers": 0,
        "truncated": False,
        "text_equal": True,
        "reencode_equal": True,
        "n_replaced": 0,
        "structure": None,
        "provider_matches_source": True,
        "completion_tokens": None if count is None else N_IDS - count,
        "count_difference": count,
        "prompt_tokens": None if prompt is None else N_PROMPT - prompt,
        "prompt_difference": prompt,
    }
    return fields | changes


CUT = {"truncated": True, "rebuild_status": "truncated", "n_terminal": 0}
TOOL = {"n_tool_calls": 2, "n_tool_markers": 8}
NO_IDS = {"ids_source": None, "n_ids": None, "n_terminal": None, "n_end_think": None, "n_tool_markers": None}


def frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    table = pa.Table.from_pylist(list(rows), schema=FACTS_SCHEMA)
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


def judged(contract: Contract, rows: Sequence[dict[str, Any]], **options: Any) -> tuple[list[dict[str, Any]], Any]:
    found = judge(frame(rows), contract, **options)
    return found.facts.to_dicts(), found.conventions


# --- conventions -----------------------------------------------------------------------------------

# (what, rows, convention, rows that it explains)
CONVENTIONS: list[tuple[str, list[dict[str, Any]], str, int]] = [
    ("one row that counts every id", [fact()], ALL, 1),
    ("thirty rows without the terminal", [fact(count=1)] * 30, TERMINAL, 30),
    ("fewer are too few", [fact(count=1)] * 29, UNKNOWN, 0),
    ("thirty rows, but cut ones tell nothing apart", [*[fact(count=1)] * 29, *[fact(**CUT)] * 9], UNKNOWN, 0),
    ("cut rows have no terminal to leave out", [*[fact(count=1)] * 30, *[fact(**CUT)] * 30], TERMINAL, 60),
    (
        "the end of thinking, told apart by cut rows",
        [*[fact(count=1)] * 30, *[fact(count=1, **CUT)] * 5],
        END_THINK,
        35,
    ),
    ("terminal and end of thinking", [fact(count=2)] * 30, BOTH, 30),
    ("every special id: two calls have eight", [fact(count=10, **TOOL)] * 30, EVERY, 30),
    ("the tool markers alone", [fact(count=8, **TOOL)] * 30, MARKERS, 30),
    ("markers are not explained by less", [fact(count=7, **TOOL)] * 30, UNKNOWN, 0),
    ("reasoning beside the count", [fact(count=23, reasoning_tokens=21)] * 30, BESIDE, 30),
    ("a surplus is not explained", [fact(count=-1)] * 100, UNKNOWN, 0),
    ("the simplest of equals", [fact(**CUT, n_end_think=0)] * 40, ALL, 40),
    ("two conventions, both above a fifth", [*[fact()] * 60, *[fact(count=1)] * 40], UNKNOWN, 0),
    ("two conventions, one a fifth", [*[fact()] * 80, *[fact(count=1)] * 20], ALL, 80),
    ("two conventions, the other a fifth", [*[fact()] * 20, *[fact(count=1)] * 80], TERMINAL, 80),
    ("faults do not disturb, however many", [*[fact()] * 60, *[fact(count=-7)] * 40], ALL, 60),
    ("faults do not disturb another convention", [*[fact(count=1)] * 60, *[fact(count=5)] * 40], TERMINAL, 60),
    (
        "faults are not rivals: a fifth is of what is explained",
        [*[fact()] * 60, *[fact(count=1)] * 40, *[fact(count=9)] * 40],
        UNKNOWN,
        0,
    ),
    ("what explains less than half is a coincidence", [*[fact()] * 40, *[fact(count=-9)] * 41], UNKNOWN, 0),
    ("no counts", [fact(count=None)] * 40, UNKNOWN, 0),
    # What cannot teach.
    ("rows of the engine", [fact(ids_source="engine")] * 40, UNKNOWN, 0),
    ("rows of another text", [fact(text_equal=False)] * 40, UNKNOWN, 0),
    ("rows without text", [fact(text_equal=None)] * 40, UNKNOWN, 0),
    ("rows of a wrong structure", [fact(structure="terminal_missing")] * 40, UNKNOWN, 0),
    ("rows without ids", [fact(count=None, **NO_IDS)] * 40, UNKNOWN, 0),
    ("given ids teach", [fact(count=1, ids_source="given")] * 30, TERMINAL, 30),
]


@pytest.mark.parametrize(("rows", "name", "support"), [c[1:] for c in CONVENTIONS], ids=[c[0] for c in CONVENTIONS])
def test_conventions(kimi: Contract, rows: list[dict[str, Any]], name: str, support: int) -> None:
    facts, (convention,) = judged(kimi, rows)
    assert (convention.completion, convention.completion_support) == (name, support)
    explained = sum(f["count_unexplained"] == 0 for f in facts if f["ids_source"] in ("rebuilt", "given"))
    assert explained == support


def test_a_convention_names_its_rivals_and_the_rows_against_them(kimi: Contract) -> None:
    rows = [fact(count=1, sample_id=f"w{i}") for i in range(30)] + [fact(sample_id=f"c{i}", **CUT) for i in range(30)]
    _, (convention,) = judged(kimi, rows)
    learned = convention.learned
    assert (learned.rows, learned.support, learned.explained) == (60, 60, 60)
    assert 0.93 < learned.confidence < 1
    assert learned.same == ("leaves out the terminal and the tool markers",)
    excluded = {rival.name: (rival.rows, rival.examples[0]) for rival in learned.excluded}
    assert excluded[ALL] == (30, ("w0", 0, 0))
    assert excluded[END_THINK] == (30, ("c0", 0, 0))


def test_what_was_not_learned_says_why(kimi: Contract) -> None:
    reasons = [
        judged(kimi, rows)[1][0].learned.why
        for rows in (
            [fact(count=None)],
            [fact(count=-1)],
            [fact(count=1)] * 29,
            [*[fact()] * 60, *[fact(count=1)] * 40],
        )
    ]
    assert reasons == [
        "no rows to compare",
        "no convention explains any row",
        "29 rows tell it from counting every id; 30 are needed",
        "two conventions: 60 rows speak for one alone and 40 for another",
    ]


def test_a_shape_that_is_counted_otherwise_has_a_convention_of_its_own(kimi: Contract) -> None:
    """Calls are one answer in ten, and their markers are left out, though everything is counted elsewhere."""
    streamed = {"streamed": True}
    rows = [*[fact(**streamed)] * 270, *[fact(count=9, **TOOL, **streamed)] * 30]
    facts, (convention,) = judged(kimi, rows)
    assert convention.completion == ALL
    assert {shape: learned.name for shape, learned in convention.shapes.items()} == {
        ("thinking", False, True): "leaves out the terminal and the tool markers"
    }
    assert {f["evidence"] for f in facts} == {"counted"}
    few, _ = judged(kimi, rows[:-1])
    assert [f["evidence"] for f in few[-29:]] == ["contradicted"] * 29


def test_streamed_and_whole_replies_are_counted_apart(kimi: Contract) -> None:
    rows = [fact(count=i % 2, streamed=bool(i % 2), n_end_think=1) for i in range(60)]
    facts, conventions = judged(kimi, rows)
    assert [(c.streamed, c.completion) for c in conventions] == [(False, ALL), (True, TERMINAL)]
    assert {f["evidence"] for f in facts} == {"counted"}


@pytest.mark.parametrize("share", [10, 25, 40])
@pytest.mark.parametrize(("count", "name"), [(0, ALL), (1, TERMINAL), (2, BOTH)])
def test_faults_that_nothing_explains_do_not_hide_a_convention(
    kimi: Contract, share: int, count: int, name: str
) -> None:
    rows = [fact(count=count if i % 100 >= share else 3 + i % 17) for i in range(100)]
    facts, (convention,) = judged(kimi, rows)
    assert convention.completion == name
    assert sum(f["evidence"] == "contradicted" for f in facts) == share


def test_the_least_support_is_what_the_table_above_takes_it_for() -> None:
    assert MIN_SUPPORT == 30


def test_a_convention_says_what_is_left_of_each_difference(kimi: Contract) -> None:
    rows = [*[fact(count=1)] * 30, fact(**CUT), fact(), fact(count=3), fact(count=None), fact(count=1, **CUT)]
    facts, _ = judged(kimi, rows)
    assert [f["count_unexplained"] for f in facts[29:]] == [0, 0, -1, 2, None, 1]
    assert [f["evidence"] for f in facts[29:]] == [
        "counted",
        "counted",
        "contradicted",
        "contradicted",
        "unverified",
        "contradicted",
    ]


def test_groups_learn_for_themselves(kimi: Contract) -> None:
    """Source, provider and model make a group; a null is a value like any other."""
    groups: list[tuple[dict[str, Any], int, str]] = [
        ({"provider": "Chutes"}, 0, ALL),
        ({"provider": "Inceptron"}, 1, TERMINAL),
        ({"provider": None}, 2, BOTH),
        ({"provider": None, "source": "sglang"}, 0, ALL),
        ({"provider": None, "model": None}, 1, TERMINAL),
        ({"provider": "Chutes", "model": "moonshotai/kimi-k2.5-0127"}, 2, BOTH),
        ({"provider": "chutes"}, -5, UNKNOWN),
    ]
    # The groups' rows stand mixed.
    rows = [fact(count=count, sample_id=f"{i}", **key) for i in range(30) for key, count, _ in groups]
    facts, conventions = judged(kimi, rows)
    assert [(c.source, c.provider, c.model, c.completion) for c in conventions] == [
        (key.get("source", "openrouter"), key["provider"], key.get("model", "moonshotai/kimi-k2.5"), name)
        if "model" not in key
        else ("openrouter", key["provider"], key["model"], name)
        for key, _, name in groups
    ]
    assert [f["sample_id"] for f in facts] == [row["sample_id"] for row in rows]
    assert [f["provider"] for f in facts] == [row["provider"] for row in rows]
    assert {f["count_unexplained"] for f in facts if f["provider"] != "chutes"} == {0}
    assert {f["count_unexplained"] for f in facts if f["provider"] == "chutes"} == {-5}


def test_a_contract_without_thinking_or_tools() -> None:
    contract = read_contract("gpt-oss")
    for count, name in ((0, ALL), (1, TERMINAL), (2, UNKNOWN)):
        _, (convention,) = judged(contract, [fact(count=count, n_end_think=0)] * 30)
        assert convention.completion == name


# --- each row --------------------------------------------------------------------------------------

# (what, row, evidence, reason), among thirty rows of the same provider that count every id
ROWS: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("counted", fact(), "counted", None),
    ("counted, cut", fact(**CUT), "counted", None),
    ("counted, given", fact(ids_source="given"), "counted", None),
    ("given, another split", fact(ids_source="given", reencode_equal=False), "counted", None),
    ("engine", fact(ids_source="engine"), "engine", None),
    ("engine, no text", fact(ids_source="engine", text_equal=None, reencode_equal=None), "engine", None),
    ("engine, no count", fact(ids_source="engine", count=None), "engine", None),
    ("engine, another split", fact(ids_source="engine", reencode_equal=False), "engine", None),
    ("logprobs", fact(ids_source="logprobs"), "logprobs", None),
    ("no ids", fact(count=None, **NO_IDS, rebuild_status="ambiguous"), "unverified", "no_ids"),
    ("structure", fact(structure="false_terminal"), "contradicted", "structure"),
    (
        "structure of the engine's",
        fact(ids_source="engine", structure="end_think_repeated"),
        "contradicted",
        "structure",
    ),
    ("text", fact(text_equal=False), "contradicted", "text"),
    ("text of the engine's", fact(ids_source="engine", text_equal=False), "contradicted", "text"),
    ("text of logprobs", fact(ids_source="logprobs", text_equal=False), "contradicted", "text"),
    ("encoding", fact(reencode_equal=False), "contradicted", "encoding"),
    ("count", fact(count=1), "contradicted", "count"),
    ("count of given ids", fact(count=1, ids_source="given"), "contradicted", "count"),
    ("count of the engine's", fact(count=1, ids_source="engine"), "contradicted", "count"),
    (
        "count before text that is not known",
        fact(count=1, ids_source="given", text_equal=None),
        "contradicted",
        "count",
    ),
    ("no text", fact(ids_source="given", text_equal=None), "unverified", "no_text"),
    ("ambiguous", fact(rebuild_status="ambiguous"), "unverified", "rebuild_status"),
    ("missing, given", fact(rebuild_status="answer_missing", ids_source="given"), "unverified", "rebuild_status"),
    ("no count", fact(count=None), "unverified", "no_count"),
    ("calls written anew", fact(count=-2, respaced_ids=2, **TOOL), "contradicted", "tool_json_reserialised"),
    ("calls written anew explain no other count", fact(count=-3, respaced_ids=2, **TOOL), "contradicted", "count"),
    (
        "reasoning beyond the end of thinking",
        fact(reasoning_tokens=30, reasoning_difference=-5),
        "contradicted",
        "reasoning_count",
    ),
    ("reasoning that nobody counts", fact(reasoning_tokens=0, reasoning_difference=25), "counted", None),
    ("structure goes before text", fact(structure="empty", text_equal=False), "contradicted", "structure"),
]


@pytest.mark.parametrize(("row", "evidence", "reason"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_each_reason(kimi: Contract, row: dict[str, Any], evidence: str, reason: str | None) -> None:
    facts, _ = judged(kimi, [*[fact(reasoning_tokens=25, reasoning_difference=0)] * 30, row])
    assert (facts[-1]["evidence"], facts[-1]["evidence_reason"]) == (evidence, reason)


def test_where_no_convention_is_known_nothing_is_proved(kimi: Contract) -> None:
    facts, _ = judged(kimi, [*[fact()] * 60, *[fact(count=1)] * 40])
    assert {(f["evidence"], f["evidence_reason"]) for f in facts} == {("unverified", "convention_unknown")}


def test_what_no_convention_explains_speaks_against_each_row_however_many(kimi: Contract) -> None:
    facts, _ = judged(kimi, [fact(count=-3)] * 40)
    assert {(f["evidence"], f["evidence_reason"]) for f in facts} == {("contradicted", "count")}


def test_every_reason_is_in_the_table() -> None:
    reasons = {reason for *_, reason in ROWS} | {"convention_unknown", "text_altered"}
    assert reasons == {
        None,
        "no_ids",
        "structure",
        "text",
        "encoding",
        "count",
        "no_text",
        "rebuild_status",
        "no_count",
        "convention_unknown",
        "tool_json_reserialised",
        "reasoning_count",
        "text_altered",
    }


# --- the prompt ------------------------------------------------------------------------------------

# (what, prompt differences of the rows, convention, what is left of each)
PROMPTS: list[tuple[str, list[int | None], str, list[int | None]]] = [
    ("the prompt that we render", [0] * 3, ALL, [0] * 3),
    ("not reported", [None] * 3, UNKNOWN, [None] * 3),
    ("tail left out", [1] * 30, "leaves out the prompt's tail", [0] * 30),
    ("tail left out, too few rows to say so", [1] * 29, UNKNOWN, [None] * 29),
    ("another prompt: each row shows it", [-7] * 40, UNKNOWN, [-7] * 40),
    ("some rows with other tools (Avian)", [*[0] * 20, *[-7] * 20], ALL, [*[0] * 20, *[-7] * 20]),
    ("some rows not reported", [0, None, -55], ALL, [0, None, -55]),
]


@pytest.mark.parametrize(("differences", "name", "left"), [p[1:] for p in PROMPTS], ids=[p[0] for p in PROMPTS])
def test_prompts(kimi: Contract, differences: list[int | None], name: str, left: list[int | None]) -> None:
    facts, (convention,) = judged(kimi, [fact(prompt=difference) for difference in differences])
    assert convention.prompt == name
    assert [f["prompt_unexplained"] for f in facts] == left
    words = {0: "counted", None: "unverified"}
    assert [f["prompt_evidence"] for f in facts] == [words.get(rest, "contradicted") for rest in left]


def test_prompts_of_the_engine_and_prompts_that_are_not_known(kimi: Contract) -> None:
    rows = [fact(prompt_ids_source="engine", prompt=None), fact(n_prompt_ids=None, prompt=None)]
    facts, _ = judged(kimi, rows)
    assert [f["prompt_evidence"] for f in facts] == ["engine", "unverified"]


# --- providers that alter text ----------------------------------------------------------------------


def edged(provider: str, leading: int, rows: int, **changes: Any) -> list[dict[str, Any]]:
    """Rows of which the first `leading` have reasoning that begins in white space."""
    return [fact(provider=provider, reasoning_leading_space=i < leading, **changes) for i in range(rows)]


@pytest.mark.parametrize(
    ("what", "rows", "trims"),
    [
        ("never where another does always", [*edged("A", 0, 40), *edged("B", 40, 40)], {"A"}),
        ("nobody to compare with", edged("A", 0, 400), set()),
        ("too few rows", [*edged("A", 0, 29), *edged("B", 40, 40)], set()),
        ("too few rows of the reference", [*edged("A", 0, 40), *edged("B", 29, 29)], set()),
        ("so rare that absence is chance", [*edged("A", 0, 40), *edged("B", 6, 40)], set()),
        ("rare, but many rows", [*edged("A", 0, 900), *edged("B", 90, 900)], {"A"}),
        ("less often is no alteration", [*edged("A", 20, 100), *edged("B", 60, 100)], set()),
        ("most trim, one does not", [*edged("A", 0, 60), *edged("B", 0, 60), *edged("C", 50, 60)], {"A", "B"}),
        ("an engine is the witness", [*edged("A", 0, 60), *edged("", 55, 60, source="sglang", ids_source="engine")],
         {"A"}),
        ("an engine is never accused", [*edged("A", 60, 60), *edged("", 0, 60, source="sglang", ids_source="engine")],
         set()),
        ("another mode is no reference", [*edged("A", 0, 60), *edged("B", 60, 60, mode="instant")], set()),
    ],
)  # fmt: skip
def test_trimming_is_recognised_by_shares(
    kimi: Contract, what: str, rows: list[dict[str, Any]], trims: set[str]
) -> None:
    found = judge(frame(rows), kimi)
    assert {alteration.provider for alteration in found.alterations} == trims, what
    altered = found.facts.filter(pl.col("text_altered").is_not_null())
    assert set(altered["provider"]) == trims
    assert set(altered["evidence_reason"]) <= {"text_altered"}
    assert set(found.facts.filter(pl.col("evidence") == "unverified")["provider"]) == trims


def test_calls_written_anew_are_recognised_by_shares(kimi: Contract) -> None:
    rows = [fact(provider=p, arguments_spaced=p == "B", **TOOL) for p in ("A", "B") for _ in range(60)]
    (alteration,) = judge(frame(rows), kimi).alterations
    assert (alteration.provider, alteration.code, alteration.reference, alteration.hits) == (
        "A", "reserialises", "openrouter/B", 0,
    )  # fmt: skip


def test_the_tail_of_instant_prompts_is_two_ids_long(kimi: Contract) -> None:
    rows = [
        fact(prompt=1 if i % 2 else 2, mode="thinking" if i % 2 else "instant", n_end_think=i % 2) for i in range(30)
    ]
    facts, (convention,) = judged(kimi, rows)
    assert convention.prompt == "leaves out the prompt's tail"
    assert {f["prompt_unexplained"] for f in facts} == {0}


# --- providers, order, nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ((), [None, None, None, None]),
        (("Chutes",), [True, True, False, None]),
        (("CHUTES", "avian"), [True, True, True, None]),
        (("Other",), [False, False, False, None]),
    ],
)
def test_allowed_providers(kimi: Contract, allowed: tuple[str, ...], expected: list[bool | None]) -> None:
    rows = [fact(provider=provider) for provider in ("Chutes", "chutes", "Avian", None)]
    facts, _ = judged(kimi, rows, allowed_providers=allowed)
    assert [f["provider_allowed"] for f in facts] == expected


def test_columns_and_their_order(kimi: Contract) -> None:
    rows = frame([fact(), fact(count=None, **NO_IDS)])
    facts = judge(rows, kimi).facts
    assert facts.columns == [*rows.columns, *(column.name for column in JUDGED_COLUMNS)]
    assert facts.select(rows.columns).equals(rows)
    assert facts.to_arrow().cast(JUDGED_SCHEMA).num_rows == 2


def test_zero_rows(kimi: Contract) -> None:
    found = judge(frame([]), kimi)
    facts = found.facts
    assert (facts.height, found.conventions, found.alterations) == (0, [], [])
    assert facts.columns == JUDGED_SCHEMA.names
