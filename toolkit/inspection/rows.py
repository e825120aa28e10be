"""What is wrong with one row, and where: its ids, its text, its counts, its calls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from toolkit.audit.blocks import Block
from toolkit.audit.specials import ends_with_terminal
from toolkit.audit.texts import Texts, expected_ids
from toolkit.audit.where import END, TEXT, bytes_of, parting, shift_of, where
from toolkit.contract import Contract
from toolkit.findings import ConventionFound
from toolkit.inspection.calls import call_fault
from toolkit.inspection.chips import chips_of
from toolkit.inspection.counting import completion_name, convention_of, count_faults
from toolkit.inspection.model import Fault, Part
from toolkit.records import ExpectationResult, IdsSource, Json, RebuildStatus
from toolkit.vocabulary import Vocabulary

_STRUCTURE = {
    "empty": "there is not one id",
    "id_outside_vocabulary": "the id is outside the vocabulary",
    "control_id_inside": "this control id belongs in no completion",
    "begin_think_inside": "thinking begins here, although it had begun before or begins in the prompt",
    "begin_think_missing": "the id that begins thinking is missing here",
    "end_think_missing": "the answer goes on without the id that ends thinking",
    "end_think_repeated": "thinking ends a second time",
    "end_think_on_truncated": "a cut answer is said to have ended its thoughts, which nobody knows",
    "think_in_instant_mode": "a think id in an answer that does not think",
    "false_terminal": "the answer was cut, and yet a terminal was put behind it",
    "terminal_missing": "the answer is said to be whole, and ends without a terminal",
    "terminal_repeated": "the answer ends a second time",
    "terminal_inside": "ids follow the terminal",
    "tools_unbalanced": "this id breaks the order of the tool section",
    "text_in_tools": "text stands between the marks of the tool section",
    "text_misplaced": "text stands where the form has none",
    "marker_in_text": "the text spells a marker of the contract: the id or its letters, nobody knows",
    "answer_missing": "neither content nor a call follows",
    "reasoning_missing": "an answer that thinks has no reasoning",
    "prompt_tail": "the prompt ends otherwise than the mode's: it asks for another mode",
}

_COVERED = {
    "structure": {"structure", "last_id", "n_terminal", "n_end_think", "end_think_at", "n_begin_think", "min_id",
                  "max_id", "n_control_ids", "n_tool_calls", "n_tool_markers"},
    "text": {"text_equal", "reencode_equal", "n_reencoded_ids"},
    "count": {"count_difference", "count_unexplained"},
    "reasoning": {"reasoning_difference", "reasoning_unexplained"},
    "prompt": {"prompt_difference", "prompt_unexplained", "prompt_evidence"},
    "tool": {"tool_fault"},
    "evidence": {"evidence", "evidence_reason"},
    "no_ids": {"n_ids", "rebuild_status"},
}  # fmt: skip
"""Columns whose expectations say no more than the fault that was found for that reason."""

_CHARACTERS: dict[str, tuple[Callable[[str], bool], str]] = {
    "n_replaced": (lambda char: char == "\ufffd", "U+FFFD stands for bytes that were lost"),
    "n_control_chars": (
        lambda char: (ord(char) < 0x20 and char not in "\t\n\r") or 0x7F <= ord(char) < 0xA0,
        "a control character",
    ),
    "n_bidi_chars": (
        lambda char: "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069",
        "a character that turns the direction of the text",
    ),
}
"""Facts that count characters: which, and what it means that one stands there."""


def faults_of(
    row: Mapping[str, Any],
    facts: Mapping[str, Any],
    failed: Sequence[ExpectationResult],
    conventions: Sequence[ConventionFound],
    vocabulary: Vocabulary,
) -> tuple[Fault, ...]:
    """Everything that is wrong with a row, those with a place in the ids first.

    Args:
        row: A row of a shard.
        facts: Its facts, as `measure` gives them now.
        failed: Expectations that it fails.
        conventions: What the audit learned of the ways of counting.
        vocabulary: The contract's.
    """
    contract = vocabulary.contract
    found: dict[str, list[Fault]] = {name: [] for name in _COVERED}
    if facts["structure"] is not None:
        found["structure"].append(_structure(row, facts, vocabulary))
    if facts["text_equal"] is False or (facts["reencode_equal"] is False and _is_held_to_text(facts)):
        found["text"] += _text(row, facts, vocabulary)
        found["structure"] = [_as_text_says(fault, found["text"], vocabulary) for fault in found["structure"]]
    for fault in count_faults(facts, conventions, contract):
        kind = {"reasoning_count": "reasoning", "prompt_count": "prompt"}.get(fault.code, "count")
        found[kind].append(fault)
    if facts["tool_fault"] is not None and (broken := call_fault(row, facts["truncated"], vocabulary)):
        found["tool"].append(broken)
    specific = [fault for faults in found.values() for fault in faults]
    if not specific and any(_column(result) in _COVERED["evidence"] for result in failed):
        found["evidence"].append(_doubt(facts, conventions))
    covered = {column for name, faults in found.items() if faults for column in _COVERED[name]}
    if specific:
        covered |= _COVERED["evidence"]
    if any(fault.code in ("no_ids", "rebuild_status") for fault in found["evidence"]):
        covered |= _COVERED["no_ids"]
    faults = [fault for kind in found.values() for fault in kind]
    faults += _of_expectations(row, facts, [r for r in failed if _column(r) not in covered], vocabulary)
    return tuple(sorted(faults, key=lambda fault: (fault.at is None, fault.part is not Part.OUTPUT)))


def _is_held_to_text(facts: Mapping[str, Any]) -> bool:
    """An engine's ids may split their text as they like; others have to be the tokenizer's."""
    return facts["ids_source"] in (IdsSource.REBUILT, IdsSource.GIVEN)


# --- ids against form and text ----------------------------------------------------------------------


def _structure(row: Mapping[str, Any], facts: Mapping[str, Any], vocabulary: Vocabulary) -> Fault:
    code, ids = facts["structure"], row["output_ids"] or []
    says = _STRUCTURE.get(code, f"the ids leave the contract's form ({code})")
    if code == "prompt_tail":
        return _prompt_tail(row, says, vocabulary)
    place = where(
        code, ids, row["mode"], vocabulary, engine=facts["ids_source"] == IdsSource.ENGINE, truncated=facts["truncated"]
    )
    if place is None:
        return Fault(code=code, says=says)
    expected = " or ".join(_named(spelling) for spelling in place.expected[:6]) or None
    found = _spelled(ids[place.at], vocabulary) if place.at < len(ids) else "the end of the ids"
    if code == "ids_shifted" and place.at < len(ids):
        meant = shift_of(ids[place.at], vocabulary.contract)
        says = "a wrong tokenizer: it numbers the special ids without the gaps that this vocabulary has between them"
        expected = None if meant is None else _spelled(meant, vocabulary)
    return Fault(code=code, says=says, part=Part.OUTPUT, at=place.at, expected=expected, found=found)


def _as_text_says(fault: Fault, of_text: Sequence[Fault], vocabulary: Vocabulary) -> Fault:
    """A structure fault at the very place, where the text says which special id is missing.

    An automaton takes any text for a part that has not ended, and notices only at its end.
    """
    if fault.code not in ("end_think_missing", "begin_think_missing", "terminal_missing", "tools_unbalanced"):
        return fault
    for other in of_text:
        if other.at is not None and other.instead and vocabulary.spelling_of(other.instead[0].id) is not None:
            return replace(fault, at=other.at, expected=_spelled(other.instead[0].id, vocabulary), found=other.found)
    return fault


def _named(spelling: str) -> str:
    return {TEXT: "ordinary text", END: "the end"}.get(spelling, spelling)


def _spelled(token_id: int, vocabulary: Vocabulary) -> str:
    """`163586 <|im_end|>`."""
    text = bytes_of(token_id, vocabulary).decode("utf-8", "backslashreplace")
    return f"{token_id} {text}" if text else f"{token_id}, which spells nothing"


def _prompt_tail(row: Mapping[str, Any], says: str, vocabulary: Vocabulary) -> Fault:
    ids = row["prompt_ids"] or []
    mode = vocabulary.contract.mode(row["mode"])
    tail = [token_id for piece in mode.prompt_ends_with for token_id in vocabulary.encode_rendered(piece)]
    start = max(len(ids) - len(tail), 0)
    at = next((start + i for i, (a, b) in enumerate(zip(ids[start:], tail, strict=False)) if a != b), start)
    return Fault(
        code="prompt_tail",
        says=says,
        part=Part.PROMPT,
        at=at,
        until=len(ids),
        expected=" ".join(mode.prompt_ends_with),
        found=" ".join(_spelled(token_id, vocabulary) for token_id in ids[start:]) or "no ids",
    )


def _text(row: Mapping[str, Any], facts: Mapping[str, Any], vocabulary: Vocabulary) -> Iterator[Fault]:
    """Where the ids part from those that the row's text gives, and both divisions of that stretch."""
    ids = row["output_ids"] or []
    given = ids_of_text(row, facts, vocabulary)
    split = parting(ids, given, vocabulary)
    if split is None:
        yield Fault(code="text", says="the row has text in a part for which its mode has no place")
        return
    same = split.same_text and facts["text_equal"] is not False
    theirs = given[split.at : split.theirs]
    yield Fault(
        code="encoding" if same else "text",
        says="the same text, but a tokenizer divides it otherwise" if same else "the ids do not spell the reply's text",
        part=Part.OUTPUT,
        at=split.at,
        until=max(split.ours, split.at + 1),
        expected=_joined(theirs, vocabulary) or "the end of the ids",
        found=_joined(ids[split.at : split.ours], vocabulary) or "the end of the ids",
        instead=chips_of(theirs[:12], vocabulary),
    )


def _joined(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    shown = " | ".join(_spelled(token_id, vocabulary) for token_id in ids[:6])
    return shown + (f" | … {len(ids) - 6:,} more" if len(ids) > 6 else "")


def ids_of_text(row: Mapping[str, Any], facts: Mapping[str, Any], vocabulary: Vocabulary) -> list[int]:
    """The ids that the row's text gives by the reference engine, in the form of its mode.

    How the output ends follows from the rules where the ids were rebuilt, from the ids themselves where they came.
    """
    contract = vocabulary.contract
    texts = _texts_of(row, facts, contract)
    block = expected_ids(texts, row["mode"], contract, vocabulary.referee.encode_batch)
    return [int(token_id) for token_id in block.ids]


def _texts_of(row: Mapping[str, Any], facts: Mapping[str, Any], contract: Contract) -> Texts:
    ids = np.array(row["output_ids"] or [], dtype=np.int32)
    truncated, rebuilt = bool(facts["truncated"]), facts["ids_source"] == IdsSource.REBUILT
    answered = bool(row["content"]) or row["tool_calls"] is not None
    outcome = contract.terminals["tool_calls" if row["tool_calls"] is not None else "stop"]
    ended = bool(ends_with_terminal(Block(ids, np.array([len(ids)], dtype=np.int64)), contract)[0])
    ruled = -1 if truncated else contract.id_of(outcome)
    own = int(ids[-1]) if ended else -1
    return Texts(
        reasoning=pa.array([row["reasoning"]], pa.string()),
        content=pa.array([row["content"]], pa.string()),
        tool_calls=pa.array([row["tool_calls"]], pa.string()),
        cut=np.array([truncated]),
        end_think=np.array([not truncated or answered if rebuilt else (facts["n_end_think"] or 0) > 0]),
        terminal=np.array([ruled if rebuilt else own], dtype=np.int64),
    )


# --- what has no place ------------------------------------------------------------------------------

_DOUBTS = {
    "no_ids": ("no rule gives ids for this answer", "an end that is known, and no part missing"),
    "rebuild_status": ("how the answer ended is unclear, so its count proves nothing", "complete or truncated"),
    "no_count": ("there is nothing to hold the ids against", "completion_tokens in the reply"),
    "convention_unknown": ("it is not known how this provider counts, so its count proves nothing", "a known way"),
    "text_altered": ("this provider is known to alter text, so a count that fits proves nothing", "text as it was"),
}


def _doubt(facts: Mapping[str, Any], conventions: Sequence[ConventionFound]) -> Fault:
    """Why a row is not proved although nothing speaks against it."""
    status = facts["rebuild_status"]
    if facts["ids_source"] is None:
        code, found = "no_ids", f"rebuild status {status}, notes: {', '.join(facts['notes'] or []) or 'none'}"
    elif status not in (RebuildStatus.COMPLETE, RebuildStatus.TRUNCATED):
        code, found = "rebuild_status", f"{status}, finish reason {facts['finish_reason']}"
    elif facts["completion_tokens"] is None:
        code, found = "no_count", "none"
    elif completion_name(facts, convention_of(facts, conventions)) == "unknown":
        convention = convention_of(facts, conventions)
        code, found = "convention_unknown", (convention.completion.why if convention else "") or "too few rows"
    else:
        code, found = "text_altered", "a count that fits"
    says, expected = _DOUBTS[code]
    return Fault(code=code, says=says, expected=expected, found=found)


def _column(result: ExpectationResult) -> str | None:
    column = result.kwargs.get("column")
    return column if isinstance(column, str) else None


def _of_expectations(
    row: Mapping[str, Any], facts: Mapping[str, Any], failed: Sequence[ExpectationResult], vocabulary: Vocabulary
) -> Iterator[Fault]:
    """What an expectation asks for and what the row has, where nothing more exact was found."""
    for result in failed:
        column = _column(result)
        place = _character_at(column, row["output_ids"] or [], vocabulary)
        if column in ("loop_ids", "loop_share", "loop_period"):
            place = _loop_at(row["output_ids"] or [], facts["loop_period"])
        at, until, meaning = place or (None, None, None)
        yield Fault(
            code=result.id,
            says=(result.fault or result.description or meaning or "").rstrip(" ."),
            part=Part.REPLY if at is None else Part.OUTPUT,
            at=at,
            until=until,
            expected=_wanted(result.kwargs),
            found=None if column is None or column not in facts else f"{column} is {_value(facts[column])}",
        )


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "absent", True: "yes", False: "no"}[value]
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"[:200]


def _wanted(kwargs: Mapping[str, Json]) -> str | None:
    """What an expectation's arguments ask of a value, in words; None where they do not say."""
    values, low, high = kwargs.get("value_set"), kwargs.get("min_value"), kwargs.get("max_value")
    if isinstance(values, list):
        shown = " or ".join(_value(value) for value in values[:4])
        return shown + (f" or {len(values) - 4:,} more" if len(values) > 4 else "")
    if low is not None and high is not None:
        return f"{_value(low)} to {_value(high)}"
    if low is not None or high is not None:
        return f"at least {_value(low)}" if low is not None else f"at most {_value(high)}"
    return None


def _character_at(column: str | None, ids: Sequence[int], vocabulary: Vocabulary) -> tuple[int, int, str] | None:
    """(first id, behind the last, meaning) of the first character that a fact counts."""
    if column is None or column not in _CHARACTERS:
        return None
    bears, meaning = _CHARACTERS[column]
    for at, token_id in enumerate(ids):
        text = bytes_of(token_id, vocabulary).decode("utf-8", "ignore")
        if any(bears(char) for char in text):
            return at, at + 1, meaning
    return None


def _loop_at(ids: Sequence[int], period: int | None) -> tuple[int, int, str] | None:
    """(first id, behind the last, meaning) of the longest stretch that repeats itself with this period."""
    if not period or len(ids) <= period:
        return None
    same = np.array(ids[period:]) == np.array(ids[:-period])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    if not len(edges):
        return None
    runs = edges.reshape(-1, 2)
    start, stop = runs[int(np.argmax(runs[:, 1] - runs[:, 0]))]
    return int(start), int(stop) + period, f"{period} ids again and again"
