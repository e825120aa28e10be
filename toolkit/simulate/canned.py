"""Answers made once and given to everybody: for measuring a client rather than the simulation."""

from __future__ import annotations

from toolkit.contract import Contract
from toolkit.simulate.answers import Answer, Draft, answer_of
from toolkit.simulate.draws import Draws
from toolkit.simulate.phrases import CONTENT, REASONING, fill
from toolkit.vocabulary import Vocabulary

_ANSWERS = 16
_ENVELOPE_BYTES = 1_000
"""Roughly what a body holds beside its texts."""


def canned_answers(contract: Contract, vocabulary: Vocabulary, size: int) -> tuple[Answer, ...]:
    """Whole answers in the contract's default mode whose OpenRouter bodies have about `size` bytes each."""
    mode = contract.default_mode
    thinks = contract.mode(mode).thinks
    room = max(256, size - _ENVELOPE_BYTES)
    answers = []
    for i in range(_ANSWERS):
        draws = Draws("canned", i)
        # A body tells the reasoning twice.
        reasoning = _text(REASONING, draws, room // 4) if thinks else None
        draft = Draft(reasoning=reasoning, content=_text(CONTENT, draws, room // 2 if thinks else room), calls=())
        answers.append(answer_of(draft, mode, contract, vocabulary))
    return tuple(answers)


def _text(pieces: dict[str, tuple[str, ...]], draws: Draws, size: int) -> str:
    """Phrases of about `size` bytes of UTF-8."""
    topics = [topic for topic in pieces if topic not in ("tool", "result")]
    text = ""
    while len(text.encode()) < size:
        text += fill(draws.pick(pieces[draws.pick(topics)]), draws) + "\n\n"
    return text
