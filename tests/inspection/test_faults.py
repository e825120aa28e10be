"""What is wrong with a row is told with its exact place, and with what was expected there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.audit.shard_rows import engine_row, facts_of, row
from toolkit.contract import Contract
from toolkit.findings import ConventionFound, Count
from toolkit.inspection.model import Fault, Part
from toolkit.inspection.rows import faults_of, ids_of_text
from toolkit.records import ExpectationResult, Severity
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

END_THINK, TERMINAL = 163607, 163586
SAID = {"reasoning": " They greet me.", "content": " Hello, my friend."}
PLACE = {"type": "object", "properties": {"rank": {"type": "integer"}}}
PARAMETERS = {"type": "object", "properties": {"place": PLACE}}
TOOL = {"type": "function", "function": {"name": "find", "parameters": PARAMETERS}}


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def convention(name: str, streamed: bool | None) -> ConventionFound:
    count, none = Count(name=name, rows=90, support=90, explained=90, confidence=0.96), Count(
        name="unknown", rows=0, support=0, explained=0, confidence=0
    )  # fmt: skip
    return ConventionFound(
        source="openrouter", provider="Chutes", model="moonshotai/kimi-k2.5", streamed=streamed, completion=count,
        reasoning=none, prompt=none,
    )  # fmt: skip


def faults(
    made: Mapping[str, Any], vocabulary: Vocabulary, *failed: ExpectationResult, way: str = "counts every id"
) -> tuple[Fault, ...]:
    (facts,) = facts_of([made], vocabulary)
    return faults_of(made, facts, failed, [convention(way, made["streamed"])], vocabulary)


def failing(id_: str, **kwargs: Any) -> ExpectationResult:
    return ExpectationResult(
        id=id_, type="t", severity=Severity.CRITICAL, scope="row", success=False, kwargs=kwargs, description="holds",
        fault="It does not.",
    )  # fmt: skip


def test_a_good_row_has_no_fault_and_its_text_gives_its_ids(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID)
    assert faults(made, vocabulary) == ()
    (facts,) = facts_of([made], vocabulary)
    assert ids_of_text(made, facts, vocabulary) == made["output_ids"]


def test_a_count_is_held_against_what_the_convention_predicts(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID, usage={"completion_tokens": 5})
    ids = len(made["output_ids"])
    (fault,) = faults(made, vocabulary, way="leaves out the terminal")
    assert fault.code == "count"
    assert fault.expected == f"{ids - 1} under “leaves out the terminal”"
    assert fault.found == f"reported 5: {ids - 1 - 5} fewer than the ids account for"
    fits = row(builder, SAID, usage={"completion_tokens": ids - 1})
    assert faults(fits, vocabulary, way="leaves out the terminal") == ()


def test_without_a_convention_every_number_that_would_fit_is_named(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID, usage={"completion_tokens": 5})
    ids = len(made["output_ids"])
    (fault,) = faults(made, vocabulary, way="unknown")
    assert fault.expected == (
        f"{ids} (counts every id) or {ids - 1} (leaves out the terminal) or "
        f"{ids - 2} (leaves out the terminal and the end of thinking)"
    )


def test_a_wrong_id_is_found_with_both_splits(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID)
    ids = list(made["output_ids"])
    at = ids.index(END_THINK) + 2
    wrong = made | {"output_ids": [*ids[:at], ids[at] + 1, *ids[at + 1 :]]}
    (fault,) = faults(wrong, vocabulary)
    assert (fault.code, fault.part, fault.at) == ("text", Part.OUTPUT, at)
    assert fault.instead[0].id == ids[at]
    assert fault.expected is not None
    assert fault.expected.startswith(str(ids[at]))
    assert fault.found is not None
    assert fault.found.startswith(str(ids[at] + 1))


def test_another_split_of_the_same_text_is_no_other_text(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID)
    ids = list(made["output_ids"])
    friend = vocabulary.encode_ordinary(" friend")
    at = ids.index(friend[0])
    halves = [*vocabulary.encode_ordinary(" fri"), *vocabulary.encode_ordinary("end")]
    (fault,) = faults(made | {"output_ids": [*ids[:at], *halves, *ids[at + 1 :]]}, vocabulary)
    assert (fault.code, fault.at, fault.until) == ("encoding", at, at + len(halves))
    assert [chip.id for chip in fault.instead] == friend


def test_a_missing_end_of_thinking_stands_where_the_text_has_it(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID)
    ids = list(made["output_ids"])
    at = ids.index(END_THINK)
    first, *_ = faults(made | {"output_ids": [*ids[:at], *ids[at + 1 :]]}, vocabulary)
    assert (first.code, first.at, first.expected) == ("end_think_missing", at, "163607 </think>")


def test_shifted_ids_are_told_with_the_true_one(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID)
    ids = [163604 if token_id == END_THINK else token_id for token_id in made["output_ids"]]
    first, *_ = faults(made | {"output_ids": ids}, vocabulary)
    assert (first.code, first.at) == ("ids_shifted", ids.index(163604))
    assert (first.expected, first.found) == ("163607 </think>", "163604 <|media_end|>")


def test_a_missing_terminal_is_behind_the_last_id(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    made = row(builder, SAID)
    first, *_ = faults(made | {"output_ids": made["output_ids"][:-1]}, vocabulary)
    assert (first.code, first.at) == ("terminal_missing", len(made["output_ids"]) - 1)
    assert first.found == "the end of the ids"


@pytest.mark.parametrize(
    ("arguments", "code", "path", "found"),
    [
        ('{"place": {"rank": "no"}}', "tool_schema", "$.place.rank", '"no"'),
        ('{"place": {"rank": 1}', "tool_arguments", "from character 21", '"place": {"rank": 1}'),
        ("[1]", "tool_arguments", "no object", "list"),
    ],
)
def test_a_call_is_told_with_its_place(
    builder: RowBuilder, vocabulary: Vocabulary, arguments: str, code: str, path: str, found: str
) -> None:
    calls = [
        {"id": f"functions.find:{n}", "type": "function", "function": {"name": "find", "arguments": text}}
        for n, text in enumerate(('{"place": {"rank": 1}}', arguments))
    ]
    made = row(builder, SAID | {"tool_calls": calls}, "tool_calls", tools=[TOOL])
    (fault,) = faults(made, vocabulary)
    ids = made["output_ids"]
    second = [at for at, token_id in enumerate(ids) if token_id == 163597][1]
    assert fault.code == code
    assert fault.says.startswith("call 2 (find): ")
    assert path in fault.says
    assert fault.found == found
    assert fault.at is not None
    assert second < fault.at <= len(ids)


@pytest.mark.parametrize(
    ("call_id", "name", "code", "expected"),
    [
        ("functions.find:4", "find", "tool_index", "index 0, or one behind the calls of the history"),
        ("functions.lose:0", "lose", "tool_name", "find"),
    ],
)
def test_a_call_of_a_wrong_name_or_place(
    builder: RowBuilder, vocabulary: Vocabulary, call_id: str, name: str, code: str, expected: str
) -> None:
    calls = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}]
    (fault,) = faults(row(builder, SAID | {"tool_calls": calls}, "tool_calls", tools=[TOOL]), vocabulary)
    assert (fault.code, fault.expected) == (code, expected)


def test_what_is_not_proved_is_told_with_the_reason(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    (fault,) = faults(row(builder, SAID), vocabulary, failing("evidence_given", column="evidence"))
    assert (fault.code, fault.found) == ("no_count", "none")


def test_an_expectation_that_nothing_explains_is_told_by_its_own_words(
    builder: RowBuilder, vocabulary: Vocabulary
) -> None:
    made = row(builder, SAID | {"content": " Hello \ufffd"})
    (fault,) = faults(made, vocabulary, failing("replaced", column="n_replaced", value_set=[0]))
    assert (fault.says, fault.expected, fault.found) == ("It does not", "0", "n_replaced is 1")
    assert fault.at is not None
    assert "\ufffd" in vocabulary.decode_bytes(made["output_ids"][fault.at :][:1]).decode()


def test_an_engine_that_counts_otherwise_than_it_sends(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    ids = [*vocabulary.encode_ordinary(" a"), END_THINK, *vocabulary.encode_ordinary(" b"), TERMINAL]
    made = engine_row(builder, {"reasoning": " a", "content": " b"}, ids, usage={"completion_tokens": 9})
    (fault,) = faults(made, vocabulary)
    assert fault.says == "the engine reports another number of ids than it sent"


def test_calls_that_cannot_be_read_do_not_stop_the_view(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    deep = "[" * 3_000
    calls = [{"id": "functions.find:0", "type": "function", "function": {"name": "find", "arguments": deep}}]
    (fault,) = faults(row(builder, SAID | {"tool_calls": calls}, "tool_calls", tools=[TOOL]), vocabulary)
    assert fault.code == "tool_arguments"
    assert json.dumps(fault.says)
