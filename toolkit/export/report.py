"""export-report.json: what was written, what was left out, and what the reader will make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolkit.export.readers import Algorithm, Longer, Split, Target
from toolkit.report.text import clean, quantity

REPORT_VERSION = 1
_SHOWN = 80


@dataclass(slots=True, kw_only=True)
class Tally:
    """Rows, their ids, and how many of these are supervised."""

    rows: int = 0
    ids: int = 0
    supervised_ids: int = 0

    def add(self, rows: int, ids: int, supervised_ids: int) -> None:
        """Count more."""
        self.rows += rows
        self.ids += ids
        self.supervised_ids += supervised_ids


@dataclass(slots=True, kw_only=True)
class Cuts:
    """Rows that stay and lose their end; what they lose, by where the cut falls: `prompt`, `reasoning`, `answer`,
    `tools`, or `output` where the contract was not at hand.
    """

    lost: Tally = field(default_factory=Tally)
    by_place: dict[str, Tally] = field(default_factory=dict)

    def add(self, place: str, ids: int, supervised_ids: int) -> None:
        """Count one row; the numbers are what it loses."""
        for tally in (self.lost, self.by_place.setdefault(place, Tally())):
            tally.add(1, ids, supervised_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of the export; `path` is relative to its folder."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSetInput:
    """The train set that was read."""

    manifest_sha256: str
    contract: str
    contract_sha256: str
    seed: int
    split: Split
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderReport:
    """What the reader will make of the files, by its own rules. reads = trains_on + dropped + what cuts lose.

    Attributes:
        rules_of: Package and version, or commit, that the rules were read from; empty for a reader of your own.
        window: Ids of a row at most; None: no limit.
        window_name: How the reader calls it.
        dropped: Reason → rows that it drops.
        cut: Rows that it cuts.
        trains_on: What survives both.
        memory_bytes: What its rows will take in its memory.
        memory_note: Where that figure comes from.
    """

    rules_of: str
    window: int | None
    window_name: str
    longer: Longer
    reads: Tally
    dropped: Mapping[str, Tally]
    cut: Cuts
    trains_on: Tally
    memory_bytes: int
    memory_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReport:
    """The drafter's vocabulary, bound to the rows that it was counted from by `data_sha256`.

    Attributes:
        distinct: Ids that are supervised at all.
        padded: Ids of the map that are supervised nowhere.
        covered_share: Share of supervised ids that the map knows, 0 to 1.
        d2t_sha256: Of the map: little-endian int64, as in d2t.npy without its header.
    """

    size: int
    target_vocab_size: int
    distinct: int
    padded: int
    covered_share: float
    d2t_sha256: str
    data_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where a row's ids and those that a tool would make of its text part."""

    id: str
    position: int
    within: Literal["prompt", "completion", "end"]
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """How many rows a tool that takes text would train on with our ids. compared = equal + different + refused.

    Attributes:
        template: Which template rendered the conversations again.
        refused: Rows that it did not render.
        equal_share: equal / compared, 0 to 1; None where nothing was compared.
        differs_in: `prompt`, `completion`, `end` (one is the other's beginning) → rows, by the first difference.
        first: The first differences.
        note: What else speaks against the tool for these rows; empty where nothing does.
    """

    template: str
    compared: int
    equal: int
    different: int
    refused: int
    equal_share: float | None
    differs_in: Mapping[str, int]
    first: tuple[FirstDifference, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The whole report. rows of the train set = written + the sum of `left_out`.

    Attributes:
        max_length: Ids of a row at most that were written.
        max_ids: Ids at most that were written, over all rows.
        left_out: Reason → rows that were not written.
        cut: Rows that were written without their end.
        data_sha256: Of the rows written: length, ids and mask of each, in their order, whatever the files' form.
        distinct_supervised: Ids that are supervised at all; None where no ids were written.
        reader: None for tools that take text.
        draft_vocabulary: None where none was asked for.
        parity: None for readers of ids.
    """

    tool_version: str
    target: Target
    algorithm: Algorithm | None
    train_set: TrainSetInput
    max_length: int | None
    longer: Longer
    max_ids: int | None
    written: Tally
    left_out: Mapping[str, Tally]
    cut: Cuts
    data_sha256: str
    distinct_supervised: int | None
    reader: ReaderReport | None
    draft_vocabulary: DraftReport | None
    parity: ParityReport | None
    notes: tuple[str, ...]
    files: tuple[WrittenFile, ...]
    tool: Literal["tokenproof"] = "tokenproof"
    version: int = REPORT_VERSION


def render_report(report: ExportReport) -> Iterator[str]:
    """Plain sentences for a terminal."""
    written = report.written
    yield (
        f"{quantity(written.rows, 'row')} of {report.train_set.rows:,} written for {report.target}: "
        f"{quantity(written.ids, 'token')}, {written.supervised_ids:,} supervised"
    )
    for reason, tally in report.left_out.items():
        rows = quantity(tally.rows, "row")
        yield f"  left out, {reason.replace('_', ' ')}: {rows}, {tally.supervised_ids:,} supervised tokens"
    yield from _cuts(report.cut, f"  cut to {report.max_length or 0:,} tokens")
    if report.reader is not None:
        yield from _reader(report.reader)
    if report.draft_vocabulary is not None:
        yield from _draft(report.draft_vocabulary)
    if report.parity is not None:
        yield from _parity(report.parity)
    yield from (f"  {note}" for note in report.notes)


def _cuts(cuts: Cuts, what: str) -> Iterator[str]:
    if not cuts.lost.rows:
        return
    lost = f"{cuts.lost.supervised_ids:,} supervised tokens lost"
    yield f"{what}: {quantity(cuts.lost.rows, 'row')}, {lost}; {_places(cuts)}"


def _places(cuts: Cuts) -> str:
    return ", ".join(f"{tally.rows:,} in the {place}" for place, tally in sorted(cuts.by_place.items()))


def _reader(reader: ReaderReport) -> Iterator[str]:
    window = "no window" if reader.window is None else f"{reader.window_name or 'window'} {reader.window:,}"
    name = f"{reader.rules_of}, {window}" if reader.rules_of else window
    dropped, cut = sum(tally.rows for tally in reader.dropped.values()), reader.cut.lost.rows
    yield (
        f"what the reader will do ({name}): drop {quantity(dropped, 'row')}, cut {quantity(cut, 'row')}, "
        f"train on {quantity(reader.trains_on.supervised_ids, 'supervised token')} "
        f"of {reader.reads.supervised_ids:,}; {_bytes(reader.memory_bytes)} of memory ({reader.memory_note})"
    )
    for reason, tally in reader.dropped.items():
        yield f"  dropped, {reason.replace('_', ' ')}: {quantity(tally.rows, 'row')}"
    yield from _cuts(reader.cut, "  cut by the reader")
    if dropped or cut:
        yield f"  --max-length and --longer decide that here; or set {reader.window_name or 'its window'} higher"


def _draft(draft: DraftReport) -> Iterator[str]:
    yield (
        f"draft vocabulary: {draft.size:,} of {draft.target_vocab_size:,} ids cover {draft.covered_share:.2%} of the "
        f"supervised tokens ({draft.distinct:,} distinct)"
    )
    if draft.padded:
        yield f"  warning: {draft.padded:,} of them occur nowhere in these rows: a smaller size loses nothing"


def _parity(parity: ParityReport) -> Iterator[str]:
    share = "nothing to compare" if parity.equal_share is None else f"{parity.equal_share:.2%} of the rows compared"
    rows = quantity(parity.compared, "row")
    yield f"rendered again by {parity.template}: our ids in {parity.equal:,} of {rows} ({share})"
    if parity.refused:
        yield f"  not rendered: {quantity(parity.refused, 'row')}"
    for first in parity.first[:1]:
        yield (
            f"  first difference: {clean(first.id, _SHOWN)}, token {first.position:,} ({first.within}): "
            f"ours {clean(first.ours, _SHOWN)}, theirs {clean(first.theirs, _SHOWN)}"
        )
    if parity.note:
        yield f"  warning: {parity.note}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1000:,.0f} kB"
