"""The place of a structure fault is the one at which the kernel's automaton stops; two splits part where they do."""

from __future__ import annotations

import random

import pytest

from toolkit.audit.structure import form_of, shifted_ids
from toolkit.audit.where import END, TEXT, Place, Split, parting, shift_of, walk, where
from toolkit.contract import Contract
from toolkit.vocabulary import Vocabulary

from .shard_rows import facts_of

END_THINK, BEGIN_THINK, TERMINAL, USER = 163607, 163606, 163586, 163587
SECTION, CALL, ARGUMENTS, CALL_END, SECTION_END = 163595, 163597, 163598, 163599, 163596
A, B = 623, 198  # " The", a line feed


def placed(
    code: str, ids: list[int], vocabulary: Vocabulary, mode: str = "thinking", *, truncated: bool = False
) -> Place:
    found = where(code, ids, mode, vocabulary, engine=False, truncated=truncated)
    assert found is not None
    assert found.code == code
    return found


@pytest.mark.parametrize(
    ("code", "ids", "at"),
    [
        ("terminal_missing", [A, END_THINK, B], 3),
        ("terminal_repeated", [A, END_THINK, B, TERMINAL, TERMINAL], 4),
        ("terminal_inside", [A, END_THINK, B, TERMINAL, A], 4),
        ("end_think_repeated", [A, END_THINK, B, END_THINK, TERMINAL], 3),
        ("end_think_missing", [A, B, TERMINAL], 2),
        ("begin_think_inside", [A, BEGIN_THINK, END_THINK, B, TERMINAL], 1),
        ("control_id_inside", [A, END_THINK, USER, TERMINAL], 2),
        ("id_outside_vocabulary", [A, END_THINK, 200_000, TERMINAL], 2),
        ("id_outside_vocabulary", [-1], 0),
        ("text_in_tools", [A, END_THINK, SECTION, A, SECTION_END, TERMINAL], 3),
        ("tools_unbalanced", [A, END_THINK, SECTION, CALL, A, SECTION_END, TERMINAL], 5),
        ("ids_shifted", [A, shifted_ids, B, TERMINAL], 1),
        ("empty", [], 0),
        ("answer_missing", [A, END_THINK, TERMINAL], 2),
        ("reasoning_missing", [END_THINK, A, TERMINAL], 0),
    ],
)
def test_a_fault_has_its_place(code: str, ids: list[int], at: int, vocabulary: Vocabulary) -> None:
    true = [shifted_ids(vocabulary.contract)[END_THINK] if i is shifted_ids else i for i in ids]
    assert placed(code, true, vocabulary).at == at


def test_what_may_stand_there_is_named(vocabulary: Vocabulary) -> None:
    found = placed("terminal_missing", [A, END_THINK, B], vocabulary)
    assert found.expected == (TEXT, "<|im_end|>", "<|tool_calls_section_begin|>")
    after = placed("terminal_inside", [A, END_THINK, B, TERMINAL, A], vocabulary)
    assert after.expected == (END,)


def test_a_cut_answer_ends_anywhere_but_not_with_a_terminal(vocabulary: Vocabulary) -> None:
    assert placed("false_terminal", [A, END_THINK, B, TERMINAL], vocabulary, truncated=True).at == 3
    form = form_of(vocabulary.contract, "thinking", thinking_may_end_in_tools=False)
    assert walk(form, [A, B], vocabulary.contract, truncated=True) is None


def test_a_spelled_marker_is_found_in_the_id_where_it_begins(vocabulary: Vocabulary) -> None:
    ids = [*vocabulary.encode_ordinary("one two "), *vocabulary.encode_ordinary("</think> three"), TERMINAL]
    at = placed("marker_in_text", ids, vocabulary).at
    assert vocabulary.decode_bytes(ids[:at]).decode() == "one two "


def test_a_fault_of_the_prompt_has_no_place_in_the_output(vocabulary: Vocabulary) -> None:
    assert where("prompt_tail", [A, TERMINAL], "thinking", vocabulary, engine=False, truncated=False) is None
    assert where("empty", [], "unheard-of", vocabulary, engine=False, truncated=False) is None


def test_the_walk_stops_where_the_kernel_finds_a_fault(kimi: Contract, vocabulary: Vocabulary) -> None:
    """Random orders of special ids and text: the same rows are rejected, with the same code."""
    draw = random.Random(11)
    pool = [A, A, B, END_THINK, TERMINAL, SECTION, CALL, ARGUMENTS, CALL_END, SECTION_END]
    rows = [[draw.choice(pool) for _ in range(draw.randint(1, 9))] for _ in range(400)]
    facts = facts_of([_row(ids, number) for number, ids in enumerate(rows)], vocabulary)
    form = form_of(kimi, "thinking", thinking_may_end_in_tools=False)
    rejected = 0
    for ids, fact in zip(rows, facts, strict=True):
        found = walk(form, ids, kimi, truncated=False)
        rejected += found is not None
        assert (found.code if found else None) == fact["structure"]
        if found is not None and found.at < len(ids):
            # Up to there nothing is wrong, and with that id it is.
            assert walk(form, ids[: found.at], kimi, truncated=True) is None
            assert walk(form, ids[: found.at + 1], kimi, truncated=True) is not None
    assert 300 < rejected < 400


def _row(ids: list[int], number: int) -> dict[str, object]:
    text = dict.fromkeys(("provider", "model", "messages", "tools", "reasoning", "content", "tool_calls"))
    usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "cost_usd"))
    return {
        **text, **usage, "row_key": f"{number:064x}", "sample_id": f"s{number}", "turn": 0, "sample_index": 0,
        "probe": False, "source": "sglang", "origin": "import", "mode": "thinking", "contract": "kimi-k2.5",
        "contract_sha256": "", "payload": "{}", "finish_reason": "stop", "native_finish_reason": None,
        "request_id": None, "created": None, "latency_s": None, "streamed": None, "output_ids": ids,
        "ids_source": "given", "prompt_ids": None, "prompt_ids_source": None, "rebuild_status": "complete", "notes": [],
    }  # fmt: skip


def test_a_shifted_id_is_traced_to_the_true_one(kimi: Contract) -> None:
    assert shift_of(163604, kimi) == END_THINK
    assert shift_of(TERMINAL, kimi) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "split"),
    [
        ("a b", "a b", None),
        ("a b", "a c", Split(at=1, ours=2, theirs=2, same_text=False)),
        ("a", "a b", Split(at=1, ours=1, theirs=2, same_text=False)),
    ],
)
def test_two_rows_part(ours: str, theirs: str, split: Split | None, vocabulary: Vocabulary) -> None:
    assert parting(*(vocabulary.encode_ordinary(text) for text in (ours, theirs)), vocabulary) == split


def test_another_split_of_the_same_text_meets_again(vocabulary: Vocabulary) -> None:
    ours = vocabulary.encode_ordinary("The question is")
    single = [*vocabulary.encode_ordinary(" quest"), *vocabulary.encode_ordinary("ion")]
    theirs = [ours[0], *single, *ours[2:]]
    assert vocabulary.decode_bytes(theirs) == vocabulary.decode_bytes(ours)
    assert parting(ours, theirs, vocabulary) == Split(at=1, ours=2, theirs=1 + len(single), same_text=True)
