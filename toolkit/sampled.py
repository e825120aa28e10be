"""Ids from per-token logprobs: the split that was sampled, held against the texts that the rules found. Pure.

Servers differ in how they show control ids among the tokens: spelled, with empty bytes, or not at all. So the rules of
the rebuild say where control ids stand, and the tokens say how the text between them was split. Only if the tokens
give every byte of every text, and nothing else, do ids follow from them.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from toolkit.assembly import Stretches, unpacked
from toolkit.vocabulary import Vocabulary

NOT_THE_TEXT = "logprobs_differ_from_text"
"""Note: the tokens do not add up to the reply's text; the ids are rebuilt from the text."""

CONTENT_ONLY = "logprobs_of_content_only"
"""Note: the tokens add up to the content, and other parts of the answer have none; the ids are rebuilt."""

UNKNOWN_PIECE = "logprobs_not_in_vocabulary"
"""Note: the tokens add up to the text, but one of them is no token of the vocabulary; the ids are rebuilt."""

_LONGEST_CHARACTER = 4
"""Bytes of the longest character in UTF-8: no more tokens than that can share one."""


def sampled_ids(stretches: Stretches, pieces: Sequence[bytes], vocabulary: Vocabulary, *, cut: bool) -> list[int] | str:
    """The output ids by the sampled split.

    Args:
        stretches: What the output is made of, texts and control ids in order, as the rules of the rebuild lay it out.
        pieces: Bytes of each sampled token, in order.
        vocabulary: Whose tokens they are.
        cut: Whether the answer was cut: then its last character may be one that no text shows whole.

    Returns:
        The ids; or, where none follow, the note that says why.
    """
    wanted: list[bytes | list[int]] = [s.encode() if isinstance(s, str) else unpacked(s).tolist() for s in stretches]
    if cut and wanted and isinstance(wanted[-1], bytes):
        wanted[-1] = _as_sampled(wanted[-1], pieces)
    ids: list[int] = []
    at = 0
    for stretch in wanted:
        if isinstance(stretch, list):
            ids += stretch
            at = _after_controls(stretch, pieces, at, vocabulary)
            continue
        covered = 0
        while covered < len(stretch):
            piece = pieces[at] if at < len(pieces) else b""
            if not piece or not stretch.startswith(piece, covered):
                return _why_not(stretches, pieces)
            token_id = _id_of(piece, vocabulary)
            if token_id is None:
                return UNKNOWN_PIECE
            ids.append(token_id)
            covered += len(piece)
            at += 1
    return ids if at == len(pieces) else _why_not(stretches, pieces)


def _id_of(piece: bytes, vocabulary: Vocabulary) -> int | None:
    """One token that spells a special one is that one, wherever it stands: the structure says what of it."""
    token_id = vocabulary.id_of_bytes.get(piece)
    return vocabulary.special.get(piece.decode(errors="replace")) if token_id is None else token_id


def _as_sampled(text: bytes, pieces: Sequence[bytes]) -> bytes:
    """The last text of a cut answer with the bytes of a cut character, which servers drop or show as U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(b"".join(pieces[-_LONGEST_CHARACTER:]))
    unfinished = decoder.getstate()[0]
    return text.removesuffix("\ufffd".encode()) + unfinished if unfinished else text


def _after_controls(controls: Sequence[int], pieces: Sequence[bytes], at: int, vocabulary: Vocabulary) -> int:
    """The place after those of the control ids that are shown, spelled or with empty bytes."""
    for token_id in controls:
        shown = (b"", (vocabulary.spelling_of(token_id) or "").encode())
        if at < len(pieces) and pieces[at] in shown:
            at += 1
    return at


def _why_not(stretches: Stretches, pieces: Sequence[bytes]) -> str:
    """Whether the tokens are at least those of one of several texts, the last one in most servers' case."""
    texts = [stretch for stretch in stretches if isinstance(stretch, str)]
    shown = b"".join(pieces)
    return CONTENT_ONLY if len(texts) > 1 and any(shown == text.encode() for text in texts) else NOT_THE_TEXT
