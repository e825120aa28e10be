"""Failing rows as the page holds them: a line each in HTML, and everything else as data that its script draws.

A page of two hundred rows would be megabytes if each id were an element of the file. So the file holds ids once and
their texts once, and the script makes elements of a row when a reader opens it. It writes them as text, never as
markup; all the same, every text in the data is clean, and no character in it can end the element that holds it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from toolkit.inspection.model import Chip, ChipKind, Fault, Part, TokenView
from toolkit.report.counts import name_of
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.text import clean

_CHIP_LIMIT = 32
_REPLIES = 60_000
"""Characters of all raw replies."""
_SAYS_LIMIT = 240
_VALUE_LIMIT = 160
_SPACE = re.compile(r"([ \n\t])")
_KINDS = {ChipKind.TEXT: 0, ChipKind.CONTROL: 1, ChipKind.BYTES: 2, ChipKind.OUTSIDE: 3}
_PARTS = {Part.PROMPT: 0, Part.OUTPUT: 1, Part.REPLY: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLine:
    """What of a failing row stands in the page's HTML.

    Attributes:
        number: Its place in the data, and its anchor: `row-3`.
        who: Source and provider.
        says: The first fault.
        expected, found: Of that fault; None where it has none.
        reasons: Ids of the expectations that it fails.
        more: Further faults.
        command: Shows the whole row on a terminal.
    """

    number: int
    name: str
    who: str
    says: str
    expected: str | None
    found: str | None
    reasons: tuple[str, ...]
    more: int
    command: str


def line_of(view: TokenView, number: int, dataset: str) -> SampleLine:
    """One row's line."""
    first = view.faults[0] if view.faults else None
    return SampleLine(
        number=number,
        name=name_of(*view.identity),
        who=who_of(view),
        says=clean(first.says, _SAYS_LIMIT) if first else "nothing is wrong with its ids",
        expected=clean(first.expected, 70) if first and first.expected else None,
        found=clean(first.found, 70) if first and first.found else None,
        reasons=tuple(clean(reason, NAME_LIMIT) for reason in view.reasons[:12]),
        more=max(len(view.faults) - 1, 0),
        command=show_command(dataset, view),
    )


def who_of(view: TokenView) -> str:
    """`openrouter · Birch`."""
    names = [view.source] if view.provider is None else [view.source, view.provider]
    return " · ".join(clean(name, NAME_LIMIT // 2) for name in names)


def show_command(dataset: str, view: TokenView) -> str:
    """The command that prints the whole row; a name that cannot be typed is left for the reader to fill in."""
    name = clean(view.sample_id, 200)
    typed = shlex.quote(name) if name == view.sample_id else "SAMPLE_ID"
    place = [f"--turn {view.turn}"] if view.turn else []
    place += [f"--index {view.sample_index}"] if view.sample_index else []
    dash = "-- " if typed.startswith(("-", "'-")) else ""
    return " ".join(["tokenproof show", shlex.quote(clean(dataset, NAME_LIMIT)), *place, f"{dash}{typed}"])


def data_of(views: Sequence[TokenView]) -> str:
    """The rows as JSON that may stand in a script element.

    `t` holds [text, kind] by id, `s` the strings that faults share, `r` the rows: `h` what is known of it as pairs of
    strings, `m` whether it is trained on, `w` its windows as [part, start, ids, {place: character}, ids in all], `f`
    its faults as [part, from, until, says, expected, found, instead], `b` the raw reply.
    """
    data = _Data(max(min(_REPLIES // max(len(views), 1), 2_400), 300))
    rows = [data.row(view) for view in views]
    text = orjson.dumps({"t": data.texts, "s": list(data.strings), "r": rows}).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


class _Data:
    """What rows share, and how many characters of its reply each may show."""

    def __init__(self, reply: int) -> None:
        self.reply = reply
        self.texts: dict[str, list[str | int]] = {}
        self.strings: dict[str, int] = {}

    def row(self, view: TokenView) -> dict[str, Any]:
        counts = {Part.PROMPT: view.n_prompt, Part.OUTPUT: view.n_output}
        return {
            "h": [[name, value] for name, value in _head(view)],
            "m": int(view.supervised),
            "w": [
                [_PARTS[w.part], w.start, [self._id(chip) for chip in w.chips],
                 {str(i): clean(chip.spells, 8) for i, chip in enumerate(w.chips) if chip.spells},
                 counts.get(w.part)]
                for w in view.windows
            ],
            "f": [self._fault(fault) for fault in view.faults[:12]],
            "b": shown_text(view.reply, self.reply),
        }  # fmt: skip

    def _id(self, chip: Chip) -> int:
        self.texts.setdefault(str(chip.id), [shown_text(chip.text, _CHIP_LIMIT), _KINDS[chip.kind]])
        return chip.id

    def _fault(self, fault: Fault) -> list[Any]:
        instead = [self._id(chip) for chip in fault.instead]
        return [
            _PARTS[fault.part],
            fault.at,
            fault.until,
            self._string(clean(fault.says, _SAYS_LIMIT)),
            None if fault.expected is None else self._string(clean(fault.expected, _VALUE_LIMIT)),
            None if fault.found is None else self._string(clean(fault.found, _VALUE_LIMIT)),
            instead,
        ]

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))


def _head(view: TokenView) -> Iterator[tuple[str, str]]:
    """What is known of a row, in pairs; what is not known is left out."""
    yield "row", f"{clean(view.shard, NAME_LIMIT)}, row {view.row_index:,}"
    yield "mode", clean(view.mode, 30)
    yield "model", "" if view.model is None else clean(view.model, NAME_LIMIT)
    yield (
        "ids",
        f"{'none' if view.ids_source is None else clean(view.ids_source, 20)}, {clean(view.rebuild_status, 30)}",
    )
    reasons = [clean(reason, 30) for reason in (view.finish_reason, view.native_finish_reason) if reason is not None]
    yield "finish reason", " / ".join(reasons) or "none"
    told = [f"{name} {value:,}" for name, value in view.tokens.items() if value is not None]
    yield "reported", ", ".join(told) or "no counts"
    if view.notes:
        yield "notes", ", ".join(clean(note, 40) for note in view.notes[:6])


def shown_text(text: str, limit: int) -> str:
    """Clean text of at most `limit` characters in which spaces, line feeds and tabs stand as they are: whoever draws it
    makes them visible.
    """
    if len(text) > limit:
        text = f"{text[: limit - limit // 4 - 1]}…{text[-(limit // 4) :]}"
    whole = ""
    for part in _SPACE.split(text):
        room = limit - len(whole)
        if not part or room <= 0:
            continue
        # What has to be escaped grows, and is cut again.
        whole += part if part in (" ", "\n", "\t") else clean(part, room)
    return whole
