"""Output ids to the parts of an answer, by the contract's grammar: the rebuild's way back. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.contract import Contract, ToolForm
from toolkit.records import ToolCall
from toolkit.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of an answer, special ids inside a part spelled out. None: the part never began."""

    reasoning: str | None = None
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class NotDividedError(ValueError):
    """Ids that no layout of the contract's mode explains. `note` is a code for the row."""

    def __init__(self, note: str):
        super().__init__(note)
        self.note = note


def divide(ids: Sequence[int], mode: str, contract: Contract, vocabulary: Vocabulary) -> Parts:
    """The parts of an output, whole or cut anywhere.

    Reasoning ends at the contract's id for it; where a model leaves that out, at a tool section or a terminal.

    Raises:
        NotDividedError: `ids_not_of_form`, or `ids_not_text` where the ids of a part are no UTF-8 or no ids at all.
        ContractError: the contract has no such mode.
    """
    reader = _Reader(list(ids), contract, vocabulary)
    found: dict[str, str] = {}
    calls: tuple[ToolCall, ...] = ()
    cut_short = False
    output = contract.mode(mode).output
    for place, piece in enumerate(output):
        if reader.done:
            break
        if piece in ("{reasoning}", "{content}"):
            if not cut_short:
                found[piece] = reader.text(_ends(output, place, contract))
        elif piece == "{tools}":
            calls = reader.calls()
        elif piece == "{terminal}":
            reader.terminal()
        elif reader.at_end or cut_short:
            # What should stand here was left out: the part behind it never began.
            cut_short = True
        else:
            reader.skip(piece)
    if not reader.done:
        raise NotDividedError("ids_not_of_form")
    return Parts(reasoning=found.get("{reasoning}"), content=found.get("{content}"), tool_calls=calls)


def read_engine_ids(
    ids: Sequence[int], undivided: str, mode: str, contract: Contract, vocabulary: Vocabulary
) -> tuple[Parts, str | None]:
    """The parts that the ids say, held against the engine's own text; what speaks against them.

    Where anything does, the engine's text stands whole in the content, so that the audit finds text and ids apart: an
    engine with another vocabulary than the contract's shows itself in nothing else.
    """
    as_told = Parts(content=undivided)
    try:
        parts = divide(ids, mode, contract, vocabulary)
    except NotDividedError as error:
        return as_told, error.note
    if not undivided:
        return parts, "engine_text_missing"
    decoded = vocabulary.decode_bytes(ids).decode(errors="ignore")
    same = _letters(decoded, contract) == _letters(undivided, contract)
    return (parts, None) if same else (as_told, "engine_text_differs")


def _letters(text: str, contract: Contract) -> str:
    """What two decoders must agree on: no special tokens, no white space around them, no halves of characters."""
    for spelling in contract.special:
        text = text.replace(spelling, "")
    return "".join(text.split()).replace("\ufffd", "")


def _ends(output: Sequence[str], place: int, contract: Contract) -> frozenset[int]:
    """Ids at which the part at `place` ends."""
    ends = set(contract.terminal_ids)
    if contract.tools is not None and "{tools}" in output:
        ends.add(contract.id_of(contract.tools.section_begin))
    following = next((piece for piece in output[place + 1 :] if piece in contract.special), None)
    return frozenset(ends if following is None else ends | {contract.id_of(following)})


def name_in(call_id: str) -> str | None:
    """NAME of `functions.NAME:IDX`."""
    match = re.fullmatch(r"functions\.(.+):\d+", call_id)
    return match[1] if match else None


class _Reader:
    """A place in the ids."""

    def __init__(self, ids: list[int], contract: Contract, vocabulary: Vocabulary):
        self._ids, self._contract, self._vocabulary = ids, contract, vocabulary
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._ids)

    @property
    def at_section(self) -> bool:
        form = self._contract.tools
        return form is not None and not self.done and self._ids[self._at] == self._contract.id_of(form.section_begin)

    @property
    def at_end(self) -> bool:
        """At a terminal or a tool section."""
        return self.at_section or self._ids[self._at] in self._contract.terminal_ids

    def text(self, ends: frozenset[int]) -> str:
        """The text up to the next of `ends`, or to the end of the ids."""
        begin = self._at
        while not self.done and self._ids[self._at] not in ends:
            self._at += 1
        try:
            return self._vocabulary.decode_bytes(self._ids[begin : self._at]).decode()
        except (IndexError, UnicodeDecodeError):
            raise NotDividedError("ids_not_text") from None

    def skip(self, piece: str) -> None:
        """Go past a special id or a literal text, as far as the ids go."""
        special = self._contract.special.get(piece)
        wanted = [special] if special is not None else self._vocabulary.encode_ordinary(piece)
        found = self._ids[self._at : self._at + len(wanted)]
        if found != wanted[: len(found)]:
            raise NotDividedError("ids_not_of_form")
        self._at += len(found)

    def terminal(self) -> None:
        """Go past the one terminal; anything behind it has no place."""
        if self._ids[self._at] in self._contract.terminal_ids:
            self._at += 1

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of a tool section, the last one as far as it goes; nothing where no section begins."""
        form = self._contract.tools
        if form is None or not self.at_section:
            return ()
        self._at += 1
        calls = []
        begin, end = self._contract.id_of(form.call[0]), self._contract.id_of(form.section_end)
        while not self.done and self._ids[self._at] == begin:
            calls.append(self._call(form))
        if not self.done:
            if self._ids[self._at] != end:
                raise NotDividedError("ids_not_of_form")
            self._at += 1
        return tuple(calls)

    def _call(self, form: ToolForm) -> ToolCall:
        self._at += 1
        between, end = self._contract.id_of(form.call[2]), self._contract.id_of(form.call[4])
        grammar = self._contract.tool_ids | self._contract.terminal_ids
        call_id = self.text(grammar)
        arguments = None
        if self._past(between):
            arguments = self.text(grammar)
            self._past(end)
        return ToolCall(id=call_id, name=name_in(call_id), arguments=arguments)

    def _past(self, token_id: int) -> bool:
        """Go past an id; False where the ids end before it."""
        if self.done:
            return False
        if self._ids[self._at] != token_id:
            raise NotDividedError("ids_not_of_form")
        self._at += 1
        return True
