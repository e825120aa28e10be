"""The token view on a terminal: ids with their texts, the place of each fault, the raw reply.

Nothing is said by colour alone: every id stands beside its text between brackets, a fault bears its number. Texts of
models are cleaned and never markup, so they can emit no escape codes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.inspection.model import Chip, ChipKind, Fault, Part, TokenView, Window
from toolkit.report.counts import name_of
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.text import clean

if TYPE_CHECKING:
    from rich.text import Text

_MARGIN = 7
_CHIP_LIMIT = 40
_SAYS_LIMIT = 240
_SPACES = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥"})
_STYLES = {ChipKind.CONTROL: "reverse", ChipKind.BYTES: "magenta", ChipKind.OUTSIDE: "bold red"}
_HUES = ("cyan", "green")


def render_view(view: TokenView, *, colour: bool, width: int = 80) -> str:
    """One row as text that ends with a line feed.

    Args:
        colour: False gives plain text without escape codes.
        width: Cells per line.
    """
    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False,
        markup=False, emoji=False, legacy_windows=False, no_color=not colour,
    )  # fmt: skip
    for line in _lines(view, width):
        console.print(line, soft_wrap=False, overflow="fold")
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


def _lines(view: TokenView, width: int) -> Iterator[Text]:
    yield _text(name_of(*view.identity), "bold")
    yield from _head(view)
    yield _text("")
    if not view.faults:
        yield _text("nothing was found to be wrong with this row", "green")
    for number, fault in enumerate(view.faults, 1):
        yield from _fault(number, fault)
    for part, title in ((Part.PROMPT, _prompt_title(view)), (Part.OUTPUT, _output_title(view))):
        yield _text("")
        yield _text(title, "bold")
        windows = [window for window in view.windows if window.part is part]
        total = (view.n_prompt if part is Part.PROMPT else view.n_output) or 0
        yield from _ids(windows, total, [(n, f) for n, f in enumerate(view.faults, 1) if f.part is part], width)
    yield _text("")
    yield _text("Raw reply, long texts clipped", "bold")
    yield _text(clean(view.reply, max(len(view.reply) * 10, 1)) if view.reply else "not kept")


def _head(view: TokenView) -> Iterator[Text]:
    who = " · ".join(clean(name, NAME_LIMIT) for name in (view.source, view.provider) if name is not None)
    model = "" if view.model is None else f", {clean(view.model, NAME_LIMIT)}"
    reasons = [clean(reason, 30) for reason in (view.finish_reason, view.native_finish_reason) if reason is not None]
    told = [f"{name} {value:,}" for name, value in view.tokens.items() if value is not None]
    yield _pair("from", f"{who}{model}, {clean(view.mode, 30)}")
    yield _pair("row", f"{clean(view.shard, NAME_LIMIT)}, row {view.row_index:,}")
    source = "none" if view.ids_source is None else clean(view.ids_source, 20)
    yield _pair("ids", f"{source}, {clean(view.rebuild_status, 30)}; finish reason {' / '.join(reasons) or 'none'}")
    yield _pair("reported", ", ".join(told) or "no counts")
    if view.notes:
        yield _pair("notes", ", ".join(clean(note, 40) for note in view.notes[:8]))
    if view.reasons:
        yield _pair("fails", ", ".join(clean(reason, NAME_LIMIT) for reason in view.reasons[:12]))


def _pair(name: str, value: str) -> Text:
    line = _text(f"{name:<10}", "dim")
    line.append(value)
    return line


def _fault(number: int, fault: Fault) -> Iterator[Text]:
    place = "" if fault.at is None else f" ({fault.part.value} id {fault.at:,})"
    line = _text(f"✗ {number}  ", "bold red")
    line.append(f"{clean(fault.says, _SAYS_LIMIT)}{place}")
    yield line
    for name, value in (("expected", fault.expected), ("found", fault.found)):
        if value is not None:
            pair = _text(f"     {name:<11}", "dim")
            pair.append(clean(value, _SAYS_LIMIT))
            yield pair
    if fault.instead:
        pair = _text(f"     {'text gives':<11}", "dim")
        pair.append(" ".join(_chip(chip) for chip in fault.instead))
        yield pair


def _prompt_title(view: TokenView) -> str:
    return "Prompt: not known" if view.n_prompt is None else f"Prompt: {view.n_prompt:,} ids, loss mask 0"


def _output_title(view: TokenView) -> str:
    if view.n_output is None:
        return "Output: no ids"
    mask = "loss mask 1" if view.supervised else "loss mask 1 if it were merged; a row in quarantine is not"
    return f"Output: {view.n_output:,} ids, {mask}"


def _chip(chip: Chip) -> str:
    """`[·The 623]`; bytes of a character name it: `[\\xe6 162 ⊂漢]`."""
    text = clean(chip.text.translate(_SPACES), _CHIP_LIMIT) or "∅"
    whole = f" ⊂{clean(chip.spells, 8)}" if chip.spells else ""
    return f"[{text} {chip.id}{whole}]"


def _ids(windows: Sequence[Window], total: int, faults: Sequence[tuple[int, Fault]], width: int) -> Iterator[Text]:
    """Lines of ids, each with the index of its first; what is left out between them is counted."""
    following = 0
    for window in windows:
        if window.start > following:
            yield _text(f"{'':{_MARGIN}}… {window.start - following:,} ids …", "dim")
        yield from _window(window, faults, width)
        following = window.start + len(window.chips)
    if total > following:
        yield _text(f"{'':{_MARGIN}}… {total - following:,} ids …", "dim")
    for number, fault in faults:
        if fault.at is not None and fault.at >= total:
            yield _text(f"{total:>{_MARGIN - 2}}  ▶{number} nothing more stands here", "bold red")


def _window(window: Window, faults: Sequence[tuple[int, Fault]], width: int) -> Iterator[Text]:
    from rich.cells import cell_len

    line, used = _text(""), 0
    for place, chip in enumerate(window.chips):
        at = window.start + place
        inside = [n for n, f in faults if f.at is not None and f.at <= at < (f.until or f.at + 1)]
        begins = [n for n, f in faults if f.at == at]
        mark = "▶" + ",".join(map(str, begins)) if begins else ""
        word = mark + _chip(chip)
        if not used or used + 1 + cell_len(word) > width:
            if used:
                yield line
            line = _text(f"{at:>{_MARGIN - 2},}  ", "dim")
            used = _MARGIN
        else:
            line.append(" ")
            used += 1
        style = _STYLES.get(chip.kind, _HUES[at % len(_HUES)])
        line.append(word, style="bold red" if inside else style)
        used += cell_len(word)
    if used:
        yield line


def _text(words: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(words, style=style)
