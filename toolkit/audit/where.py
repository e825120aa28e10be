"""Where exactly something is wrong in one row. Pure, for single rows: the kernel says that, this says where.

A place is an index into the row's output ids; the index behind the last one says that something is missing there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from toolkit.audit.structure import Form, form_of, has_form, shifted_ids
from toolkit.contract import Contract
from toolkit.vocabulary import Vocabulary

TEXT = "text"
"""Stands among the spellings of `Place.expected` where any ordinary text may follow."""

END = "the end"
"""Stands there where the output may be over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where ids leave their form.

    Attributes:
        at: Index of the first id that has no place; the number of ids where something is missing at the end.
        code: What is wrong there, as in the fact `structure`.
        expected: Spellings that might have stood there, `TEXT` and `END` among them; empty where that is not known.
    """

    at: int
    code: str
    expected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where two rows of ids part, and where they meet again at the same byte of the text.

    Attributes:
        at: Index of the first id that differs, in both.
        ours, theirs: Index behind the last id of the stretch that differs, in each.
        same_text: The two stretches spell the same bytes: the text is the same, its division is not.
    """

    at: int
    ours: int
    theirs: int
    same_text: bool


def where(
    code: str, ids: Sequence[int], mode: str, vocabulary: Vocabulary, *, engine: bool, truncated: bool
) -> Place | None:
    """The place of a structure fault.

    Args:
        code: The row's fact `structure`.
        ids: Its output ids.
        mode: Its mode.
        vocabulary: The contract's.
        engine: Whether the ids are the engine's own.
        truncated: Whether the answer was cut.

    Returns:
        None where the code has no place in the output ids: it speaks of the prompt, or the ids do not bear it.
    """
    contract = vocabulary.contract
    if mode not in contract.modes:
        return None
    rejected = None
    if has_form(contract):
        form = form_of(contract, mode, thinking_may_end_in_tools=engine)
        rejected = walk(form, ids, contract, truncated=truncated)
    at = _of_code(code, ids, vocabulary, truncated=truncated)
    if rejected is not None and (rejected.code == code or at is None or rejected.at == at):
        return Place(at=rejected.at, code=code, expected=rejected.expected) if _is_of_ids(code) else None
    return None if at is None else Place(at=at, code=code)


def walk(form: Form, ids: Sequence[int], contract: Contract, *, truncated: bool) -> Place | None:
    """Follow one row through the automaton of its mode; the place where it is rejected, None where it is not.

    Special ids that no form knows are passed over as text is: they are a fault of their own.
    """
    index = {int(symbol): number for number, symbol in enumerate(form.symbols)}
    state = 0
    for at, token_id in enumerate(ids):
        symbol = index.get(token_id)
        if symbol is None:
            if (fault := int(form.text_fault[state])) >= 0:
                return Place(at=at, code=form.codes[fault], expected=_allowed(form, state, contract))
            continue
        after = int(form.step[state, symbol])
        if after < 0:
            code = form.codes[int(form.fault[state, symbol])]
            return Place(at=at, code=code, expected=_allowed(form, state, contract))
        state = after
    if truncated or state == form.done:
        return None
    return Place(at=len(ids), code="terminal_missing", expected=_allowed(form, state, contract))


def _allowed(form: Form, state: int, contract: Contract) -> tuple[str, ...]:
    """What may stand in a state."""
    spelled = {token_id: spelling for spelling, token_id in contract.special.items()}
    ids = (int(form.symbols[symbol]) for symbol in np.flatnonzero(form.step[state] >= 0))
    text = (TEXT,) if form.text_fault[state] < 0 else ()
    end = (END,) if state == form.done else ()
    return (*text, *(spelled.get(token_id, str(token_id)) for token_id in ids), *end)


_OF_PROMPT = frozenset({"prompt_tail"})


def _is_of_ids(code: str) -> bool:
    return code not in _OF_PROMPT


def _of_code(code: str, ids: Sequence[int], vocabulary: Vocabulary, *, truncated: bool) -> int | None:
    """The first id that shows a fault by itself, whatever the order of the others."""
    contract = vocabulary.contract
    end_think = {contract.id_of(contract.think.end)} if contract.think else set()
    begin_think = {contract.id_of(contract.think.begin)} if contract.think else set()
    if code == "empty":
        return 0
    if code == "id_outside_vocabulary":
        return next((at for at, token_id in enumerate(ids) if not 0 <= token_id < contract.vocab_size), None)
    if code == "control_id_inside":
        strange = contract.output_ids() | begin_think
        return next((at for at, i in enumerate(ids) if _is_special(i, contract) and i not in strange), None)
    if code == "begin_think_inside":
        return _nth(ids, begin_think, 1 if contract.think_open_in == "completion" else 0)
    if code == "false_terminal":
        return _nth(ids, contract.terminal_ids, 0)
    if code == "ids_shifted":
        return _nth(ids, set(shifted_ids(contract).values()), 0)
    if code == "terminal_missing":
        return len(ids)
    if code == "terminal_repeated":
        return _nth(ids, contract.terminal_ids, 1)
    if code == "terminal_inside":
        first = _nth(ids, contract.terminal_ids, 0)
        return None if first is None or first + 1 >= len(ids) else first + 1
    if code == "end_think_on_truncated":
        return _nth(ids, end_think, 0)
    if code == "marker_in_text":
        return _marker_at(ids, vocabulary)
    if code == "reasoning_missing":
        return 0
    if code == "answer_missing":
        ended = _nth(ids, end_think, 0)
        return len(ids) if ended is None else ended + 1
    return None


def _is_special(token_id: int, contract: Contract) -> bool:
    spec = contract.vocabulary
    return spec.base_tokens <= token_id < contract.vocab_size or token_id in spec.holes


def _nth(ids: Sequence[int], wanted: Collection[int], nth: int) -> int | None:
    """Index of the n-th of the wanted ids, from 0."""
    found = [at for at, token_id in enumerate(ids) if token_id in wanted]
    return found[nth] if nth < len(found) else None


def _marker_at(ids: Sequence[int], vocabulary: Vocabulary) -> int | None:
    """The ordinary id in which the first spelled-out marker begins."""
    contract = vocabulary.contract
    pieces = [b"\xff" if _is_special(i, contract) else bytes_of(i, vocabulary) for i in ids]
    text = b"".join(pieces)
    found = [place for marker in contract.markers if (place := text.find(marker.encode())) >= 0]
    if not found:
        return None
    ends = np.cumsum([len(piece) for piece in pieces])
    return int(np.searchsorted(ends, min(found), side="right"))


def shift_of(token_id: int, contract: Contract) -> int | None:
    """The id that a gap-closing tokenizer meant by this one; None where it numbers none so."""
    return next((true for true, shifted in shifted_ids(contract).items() if shifted == token_id), None)


# --- two rows of ids --------------------------------------------------------------------------------


def parting(ours: Sequence[int], theirs: Sequence[int], vocabulary: Vocabulary) -> Split | None:
    """Where two rows of ids first differ; None where they do not."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    if at == len(ours) == len(theirs):
        return None
    i, j, left, right = at, at, b"", b""
    while True:
        if left == right and (i, j) != (at, at):
            return Split(at=at, ours=i, theirs=j, same_text=True)
        if not (left.startswith(right) or right.startswith(left)):
            return Split(at=at, ours=i, theirs=j, same_text=False)
        if (len(left) <= len(right) or j >= len(theirs)) and i < len(ours):
            left += bytes_of(ours[i], vocabulary)
            i += 1
        elif j < len(theirs):
            right += bytes_of(theirs[j], vocabulary)
            j += 1
        else:
            return Split(at=at, ours=i, theirs=j, same_text=left == right)


def bytes_of(token_id: int, vocabulary: Vocabulary) -> bytes:
    """The bytes of one id, a special one spelled out; nothing for ids outside the vocabulary."""
    return vocabulary.decode_bytes([token_id]) if 0 <= token_id < vocabulary.size else b""
