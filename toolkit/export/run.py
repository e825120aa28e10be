"""From a train set to a trainer's files: one pass, no more than a row group of it in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from toolkit import __version__
from toolkit.errors import ConfigError, StoreError
from toolkit.export.draft_files import write_draft_vocabulary, write_frequencies
from toolkit.export.draft_vocabulary import DraftVocabulary, count_supervised, draft_vocabulary
from toolkit.export.hf_dataset import HfDataset, labels_columns, speculators_columns, trl_columns
from toolkit.export.json_lines import JsonLines
from toolkit.export.output import REPORT_NAME, check_replaceable
from toolkit.export.readers import TEXT_ONLY, Algorithm, Longer, Reader, Target, reader_of
from toolkit.export.report import (
    Cuts,
    DraftReport,
    ExportReport,
    ParityReport,
    ReaderReport,
    Tally,
    TrainSetInput,
    WrittenFile,
)
from toolkit.export.torchspec import TorchSpecCache
from toolkit.export.train_set import TrainSet
from toolkit.export.window import FATES, Ints, Marks, Outcome, Rows, look_through, places, take
from toolkit.store.files import sha256_of, write_atomic
from toolkit.store.published import replacing

OVER_CAP = "over_token_cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What is asked for.

    Attributes:
        max_length: Ids of a row at most; None: rows are written as they are.
        longer: What becomes of longer rows.
        max_ids: Ids at most, over all rows: rows in their order up to the first that would exceed it.
        reader_window: What the trainer's own window will be set to; None: `max_length`, else its default.
        draft_vocab_size: Ids that the drafter knows; None: no map.
        target_vocab_size: Ids that the target knows, where the contract is not at hand.
    """

    target: Target
    algorithm: Algorithm | None = None
    max_length: int | None = None
    longer: Longer = Longer.CUT
    max_ids: int | None = None
    reader_window: int | None = None
    draft_vocab_size: int | None = None
    target_vocab_size: int | None = None


class _Writer(Protocol):
    """What writes rows in one form."""

    def add(self, rows: Rows) -> None: ...

    def finish(self, data_sha256: str) -> None: ...

    def close(self) -> None: ...


def check_options(options: ExportOptions, vocab_size: int | None) -> Reader:
    """The rules of the reader that the options name; none where it takes text.

    Raises:
        ConfigError: an option is out of its range, or does not go with the target.
    """
    for name, value in (("--max-length", options.max_length), ("--max-tokens", options.max_ids)):
        if value is not None and value < 1:
            raise ConfigError(f"{name}: expected at least 1, found {value}")
    if options.draft_vocab_size is not None:
        size = options.target_vocab_size or vocab_size
        if size is None:
            raise ConfigError(
                "a draft vocabulary needs the target's size, and the train set's contract is not at hand: "
                "say --target-vocab-size"
            )
        if not 0 < options.draft_vocab_size <= size:
            raise ConfigError(f"--draft-vocab-size: expected 1 to {size:,}, found {options.draft_vocab_size:,}")
    if options.target not in TEXT_ONLY:
        return reader_of(options.target, options.algorithm, options.reader_window or options.max_length)
    if (options.max_length, options.reader_window, options.algorithm) != (None, None, None):
        raise ConfigError(f"{options.target}: takes text and makes ids of its own, so no length of ours can hold there")
    return Reader(target=options.target, window=None, longer=Longer.KEEP)


def export(
    train_set: TrainSet,
    output: Path,
    options: ExportOptions,
    marks: Marks | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> ExportReport:
    """Write a train set's rows for a trainer, and the report beside them. The same input gives the same bytes.

    Args:
        train_set: Every byte of it is held against its manifest while it is read.
        output: The folder; an earlier export in it is replaced.
        options: What is asked for.
        marks: Ids that divide an output, to say where cuts fall; None where the contract is not at hand.
        advance: Told of rows as they are read.

    Raises:
        ConfigError: an option is wrong, or `output` holds something that no export wrote.
        StoreError: the train set is not what its manifest states, no row remains, or something cannot be written.
            `output` is as before.
    """
    if options.target in TEXT_ONLY:
        raise ConfigError(f"{options.target}: takes text, and has no reader of ids")
    run = begin(train_set, options, marks)
    with replacing(output, check_replaceable, doing="exporting") as fresh:
        with closing(_writer_of(options.target, fresh)) as writer:
            for rows in train_set.read():
                writer.add(run.select(rows))
                advance(len(rows))
            check_some(run, train_set)
            writer.finish(run.digest.hexdigest())
        return finish(run, fresh, train_set)


def begin(train_set: TrainSet, options: ExportOptions, marks: Marks | None = None) -> Run:
    """An export of which nothing has been read.

    Raises:
        ConfigError: an option is wrong.
    """
    run = Run(options=options, reader=check_options(options, train_set.vocab_size), marks=marks)
    run.counts = np.zeros(options.target_vocab_size or train_set.vocab_size or 0, np.int64)
    return run


def check_some(run: Run, train_set: TrainSet) -> None:
    """See that something was written.

    Raises:
        StoreError: nothing was; the message says why.
    """
    if not run.written.rows:
        reasons = ", ".join(f"{tally.rows:,} {reason}" for reason, tally in run.left_out.items())
        raise StoreError(f"{train_set.folder}: no row remains to be exported: {reasons}")


@dataclass(slots=True, kw_only=True)
class Run:
    """What has been selected and counted so far."""

    options: ExportOptions
    reader: Reader
    marks: Marks | None
    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    written: Tally = field(default_factory=Tally)
    left_out: dict[str, Tally] = field(default_factory=dict)
    cut: Cuts = field(default_factory=Cuts)
    dropped_by_reader: dict[str, Tally] = field(default_factory=dict)
    cut_by_reader: Cuts = field(default_factory=Cuts)
    trained_on: Tally = field(default_factory=Tally)
    full: bool = False
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def select(self, rows: Rows) -> Rows:
        """The rows of these that are written, with their ids that are; all of it counted."""
        outcome = self._cap(rows, look_through(rows, self._rules()))
        _count_left_out(rows, outcome, self.left_out)
        _count_cuts(rows, outcome, self.marks, self.cut)
        chosen = take(rows, outcome.lengths)
        self.written.add(len(chosen), len(chosen.ids), int(outcome.supervised.sum()))
        self._foresee(chosen)
        self._hash(chosen)
        largest = int(chosen.ids.max(initial=-1))
        if largest >= len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(largest + 1 - len(self.counts), np.int64)])
        count_supervised(chosen, self.counts)
        return chosen

    def _rules(self) -> Reader:
        """What the export itself does: cut or drop at the length that was asked for, and leave out what would be
        dropped then.
        """
        if self.options.max_length is None or self.options.longer is Longer.KEEP:
            return Reader(target=self.reader.target, window=None, longer=Longer.KEEP)
        return replace(self.reader, window=self.options.max_length, longer=self.options.longer)

    def _cap(self, rows: Rows, outcome: Outcome) -> Outcome:
        """The outcome, with the rows beyond the cap of all ids left out."""
        if self.options.max_ids is None:
            return outcome
        sums = np.cumsum(outcome.lengths) + self.written.ids
        beyond = np.full(len(rows), self.full) | (sums > self.options.max_ids)
        # Once a row does not fit, none that follows is taken: what is written is the beginning of the order.
        self.full = self.full or bool(beyond.any())
        beyond &= outcome.fates < 0
        supervised = np.where(beyond, 0, outcome.supervised)
        tally = self.left_out.setdefault(OVER_CAP, Tally()) if beyond.any() else Tally()
        tally.add(int(beyond.sum()), int(rows.lengths[beyond].sum()), int(rows.supervised()[beyond].sum()))
        return replace(
            outcome, lengths=np.where(beyond, 0, outcome.lengths), supervised=supervised, cut=outcome.cut & ~beyond
        )

    def _foresee(self, chosen: Rows) -> None:
        outcome = look_through(chosen, self.reader)
        _count_left_out(chosen, outcome, self.dropped_by_reader)
        _count_cuts(chosen, outcome, self.marks, self.cut_by_reader)
        self.trained_on.add(int((outcome.lengths > 0).sum()), int(outcome.lengths.sum()), int(outcome.supervised.sum()))

    def _hash(self, chosen: Rows) -> None:
        for array, kind in ((chosen.lengths, "<i8"), (chosen.ids, "<i4"), (chosen.mask, "i1")):
            self.digest.update(np.ascontiguousarray(array, dtype=kind).data)


def _count_left_out(rows: Rows, outcome: Outcome, tallies: dict[str, Tally]) -> None:
    supervised = rows.supervised()
    for index, fate in enumerate(FATES):
        left_out = outcome.fates == index
        if left_out.any():
            tallies.setdefault(str(fate), Tally()).add(
                int(left_out.sum()), int(rows.lengths[left_out].sum()), int(supervised[left_out].sum())
            )


def _count_cuts(rows: Rows, outcome: Outcome, marks: Marks | None, cuts: Cuts) -> None:
    if not outcome.cut.any():
        return
    chosen = take(rows, np.where(outcome.cut, rows.lengths, 0))
    cut_at = outcome.lengths[outcome.cut]
    lost = (chosen.lengths - cut_at).tolist()
    lost_supervised = (chosen.supervised() - outcome.supervised[outcome.cut]).tolist()
    for place, ids, supervised in zip(places(chosen, cut_at, marks), lost, lost_supervised, strict=True):
        cuts.add(str(place), ids, supervised)


def _writer_of(target: Target, folder: Path) -> _Writer:
    match target:
        case Target.SPECFORGE | Target.JSONL:
            return JsonLines(folder / ("specforge.jsonl" if target is Target.SPECFORGE else "rows.jsonl"))
        case Target.SPECULATORS:
            return HfDataset(folder, speculators_columns, as_torch=True)
        case Target.TRL:
            return HfDataset(folder, trl_columns)
        case Target.TORCHSPEC:
            return TorchSpecCache(folder)
        case _:
            return HfDataset(folder, labels_columns)


def finish(run: Run, fresh: Path, train_set: TrainSet, parity: ParityReport | None = None) -> ExportReport:
    """Write what goes beside the rows, the report last.

    Raises:
        StoreError: it cannot be written.
    """
    data_sha256 = run.digest.hexdigest()
    options, draft = run.options, None
    if options.target is Target.SPECULATORS:
        write_frequencies(fresh / "token_freq.pt", run.counts)
    if options.draft_vocab_size is not None:
        vocabulary = draft_vocabulary(run.counts, options.draft_vocab_size)
        draft = _describe_draft(vocabulary, data_sha256)
        write_draft_vocabulary(fresh, vocabulary, draft, beside=options.target is Target.SPECULATORS)
    manifest = train_set.manifest
    report = ExportReport(
        tool_version=__version__,
        target=options.target,
        algorithm=options.algorithm,
        train_set=TrainSetInput(
            manifest_sha256=train_set.manifest_sha256,
            contract=manifest.contract,
            contract_sha256=manifest.contract_sha256,
            seed=manifest.seed,
            split=train_set.split,
            rows=train_set.rows,
        ),
        max_length=options.max_length,
        longer=options.longer if options.max_length is not None else Longer.KEEP,
        max_ids=options.max_ids,
        written=run.written,
        left_out=_sorted(run.left_out),
        cut=run.cut,
        data_sha256=data_sha256,
        distinct_supervised=int(np.count_nonzero(run.counts)),
        reader=None if options.target in TEXT_ONLY else _describe_reader(run),
        draft_vocabulary=draft,
        parity=parity,
        notes=tuple(_notes(run)),
        files=written_files(fresh),
    )
    write_atomic(fresh / REPORT_NAME, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return report


def _describe_reader(run: Run) -> ReaderReport:
    reader = run.reader
    per_id = reader.ram_bytes_per_id
    return ReaderReport(
        rules_of=reader.source,
        window=reader.window,
        window_name=reader.window_name,
        longer=reader.longer,
        reads=run.written,
        dropped=_sorted(run.dropped_by_reader),
        cut=run.cut_by_reader,
        trains_on=run.trained_on,
        memory_bytes=int(run.trained_on.ids * per_id),
        memory_note=f"{per_id} bytes a token, all rows at once" if per_id else "the files are mapped, not held",
    )


def _describe_draft(vocabulary: DraftVocabulary, data_sha256: str) -> DraftReport:
    return DraftReport(
        size=len(vocabulary.d2t),
        target_vocab_size=len(vocabulary.t2d),
        distinct=vocabulary.distinct,
        padded=vocabulary.padded,
        covered_share=vocabulary.covered / vocabulary.total if vocabulary.total else 0.0,
        d2t_sha256=hashlib.sha256(vocabulary.d2t.astype("<i8").tobytes()).hexdigest(),
        data_sha256=data_sha256,
    )


def _notes(run: Run) -> Iterable[str]:
    if run.marks is None and (run.cut.lost.rows or run.cut_by_reader.lost.rows):
        yield "the contract of the train set is not at hand: cuts in the output are not told apart by its parts"
    if run.options.target is Target.TORCHSPEC:
        yield (
            "torchspec.pt goes where TorchSpec looks for its cache: start it once on your training file, and take the "
            'path that it names ("cache will be saved to")'
        )


def written_files(folder: Path) -> tuple[WrittenFile, ...]:
    """Every file of a finished export, by path."""
    return tuple(
        WrittenFile(path=str(path.relative_to(folder)), sha256=sha256_of(path), bytes=path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )


def _sorted(tallies: dict[str, Tally]) -> dict[str, Tally]:
    return dict(sorted(tallies.items()))
