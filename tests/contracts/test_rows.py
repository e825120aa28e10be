"""Rows that other people's pipelines made, under the toy contract: each comes out with exactly the stated reasons.

The rows give ids without text. Here ids stand for words, the two ids inside a call for what the row says the call is,
and the text is what a server would return for those ids; the rows then go the way of ids that came in a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.audit.shard_rows import SHA, body, table
from tests.conftest import shared_file
from toolkit.audit.evidence import judge
from toolkit.audit.measure import measure
from toolkit.records import Entry, IdsSource, Origin, Reply
from toolkit.rows import RowBuilder

from .toy import toy, toy_vocabulary, word

Facts = Mapping[str, Any]

CHOSEN = [1, 2, 3, 8, 9, 10, *range(12, 19)]
TH, END_TH, CALLS, CALLS_END, END = 5, 6, 7, 8, 4

REASONS: dict[str, Callable[[Facts], bool]] = {
    "truncated": lambda f: f["truncated"] and f["structure"] is None,
    "empty_answer": lambda f: f["said_hash"] is None,
    "reasoning_missing_or_split": lambda f: f["mode"] == "think" and f["n_end_think"] == 0,
    "false_end_after_length": lambda f: f["structure"] == "false_terminal",
    "token_count_drift": lambda f: f["count_unexplained"] not in (None, 0),
    "reasoning_leak": lambda f: f["structure"] == "think_in_instant_mode",
    "finish_reason_vs_tool_tokens": lambda f: f["finish_reason"] == "stop" and f["n_tool_calls"] > 0,
    "tool_id_format": lambda f: f["tool_fault"] == "tool_id" and "tool_id_foreign" in f["notes"],
    "tool_args_not_json": lambda f: f["tool_fault"] == "tool_arguments",
    "tool_args_schema": lambda f: f["tool_fault"] == "tool_schema",
    "repetition_loop": lambda f: (f["loop_share"] or 0) > 0.5,
    "id_out_of_vocab": lambda f: f["structure"] == "id_outside_vocabulary",
}
"""Their name of a reason → our facts that say it."""

SPEAKS_AGAINST = {
    "structure": {"false_end_after_length", "reasoning_leak", "id_out_of_vocab", "reasoning_missing_or_split"},
    "count": {"token_count_drift"},
    "rebuild_status": {"tool_id_format"},
}
"""Why a row is not proved → the reasons that this can mean."""


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    lines = shared_file("rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(lines[number - 1]) for number in CHOSEN]


def text_of(ids: list[int]) -> str:
    return "".join(word(i) for i in ids if 12 <= i < 144)


def message_of(row: Mapping[str, Any], ids: list[int]) -> dict[str, Any]:
    """What a server returns for these ids: reasoning, content, and calls if the row has them as such."""
    reasoning, answer = None, ids
    if TH in ids:
        end = ids.index(END_TH) if END_TH in ids else len(ids)
        reasoning, answer = text_of(ids[ids.index(TH) + 1 : end]), ids[end:]
    section: list[int] = []
    if CALLS in answer:
        section = answer[answer.index(CALLS) : answer.index(CALLS_END) + 1]
        answer = answer[: answer.index(CALLS)]
    content = text_of(answer) or (None if row["content"] is None or section else row["content"])
    if section and not row["tool_calls"]:
        content = "<CALLS><CALL>functions.search:0<ARGS>{}</CALL></CALLS>"
    message: dict[str, Any] = {"reasoning": reasoning, "content": content}
    if row["tool_calls"]:
        function = {"name": "search", "arguments": row["tool_calls"][0]["arguments"]}
        message["tool_calls"] = [{"id": row["tool_calls"][0]["id"], "type": "function", "function": function}]
    return message


def facts_of(case: Mapping[str, Any], number: int, folder: Path) -> pl.DataFrame:
    """The facts of one row, through the tool's own reading, building and measuring."""
    row = case["row"]
    call = (row["tool_calls"] or [{"id": "functions.search:0", "arguments": "{}"}])[0]
    vocabulary = toy_vocabulary(folder, {70: call["id"], 71: call["arguments"]})
    ids = row["input_ids"][len(row["prompt_ids"]) :]
    parameters = {"type": "object", "required": call.get("required", [])}
    tool = {"type": "function", "function": {"name": "search", "parameters": parameters}}
    entry = Entry(
        row_key=hashlib.sha256(case["name"].encode()).hexdigest(),
        sample_id=str(number),
        source="openrouter",
        origin=Origin.IMPORT,
        contract="toy",
        mode=row["mode"],
        model="toy",
        form="openai",
        ids_are=IdsSource.GIVEN,
        tools=[tool] if row["tool_calls"] else None,
        body=body(
            message_of(row, ids),
            row["finish_reason"],
            usage={"completion_tokens": row["usage_completion"]},
            choice={"token_ids": ids},
            provider=row["provider"],
            model="toy",
        ),
    )
    builder = RowBuilder(toy(), vocabulary)
    reply = builder.read(entry, where="here")
    assert isinstance(reply, Reply), reply
    built = builder.build(entry, reply)
    assert built["output_ids"] == ids
    frame = pl.from_arrow(measure(table([built]), toy(), vocabulary, shard_sha256=SHA))
    assert isinstance(frame, pl.DataFrame)
    return frame


@pytest.fixture(scope="module")
def judged(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """All rows as one dataset, by their number."""
    folder = tmp_path_factory.mktemp("toy")
    frames = [facts_of(case, number, folder / str(number)) for number, case in zip(CHOSEN, cases, strict=True)]
    return {facts["sample_id"]: facts for facts in judge(pl.concat(frames), toy()).facts.to_dicts()}


@pytest.mark.parametrize("number", CHOSEN)
def test_a_row_has_exactly_its_reasons(number: int, cases: list[dict[str, Any]], judged: dict[str, Facts]) -> None:
    case, facts = cases[CHOSEN.index(number)], judged[str(number)]
    assert case["name"].startswith(f"{number:02} ")
    found = {name for name, holds in REASONS.items() if holds(facts)}
    assert found == set(case["expect"])


@pytest.mark.parametrize("number", CHOSEN)
def test_what_speaks_against_the_ids_is_one_of_the_reasons(
    number: int, cases: list[dict[str, Any]], judged: dict[str, Facts]
) -> None:
    """Whatever is wrong with the text of a row, its ids are proved unless one of the reasons is about ids."""
    facts, stated = judged[str(number)], set(cases[CHOSEN.index(number)]["expect"])
    if facts["evidence_reason"] is None:
        assert facts["evidence"] == "counted"
        assert not stated & set().union(*SPEAKS_AGAINST.values()) - {"reasoning_missing_or_split"}
    else:
        assert SPEAKS_AGAINST[facts["evidence_reason"]] & stated
