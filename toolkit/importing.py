"""Import: answers that somebody already has become rows, all of a command's files or none.

Counts add up: lines = rows + replaced + failures + already there.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from toolkit.contract import Contract
from toolkit.errors import ConfigError, StoreError
from toolkit.import_lines import ImportOptions, LineError, LineReader, check_options
from toolkit.prepared_files import files_of, is_table, table_lines
from toolkit.prompt import prompt_tails
from toolkit.records import Entry, Failure, Json, Origin, Prompt, Reply, storable_text
from toolkit.rows import RowBuilder
from toolkit.sealing import ANSWERS_AT_ONCE, LETTERS_AT_ONCE, check_contract, conflict, slot_of
from toolkit.store.arrays import Columns
from toolkit.store.discards import settle_discards
from toolkit.store.files import numbered_lines, open_regular, sole_writer, stands
from toolkit.store.journal import write_failures
from toolkit.store.listing import seal_batches
from toolkit.store.live_rows import LiveRow, LiveRows, MadeWith, Slot, digest_of
from toolkit.store.prompts import read_prompts
from toolkit.store.shard_writer import gathered
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary
from toolkit.wire import dump_json
from toolkit.wire.redact import hide_in_text

__all__ = ["ImportCounts", "ImportOptions", "check_options", "count_lines", "import_files"]

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
}
"""What files that are not JSON lines begin with."""

_UNKNOWN_PROMPT = "prompt_unknown"


@dataclass(slots=True)
class ImportCounts:
    """What became of the lines.

    Attributes:
        rows: New rows.
        replaced: Imported rows that were there and are made anew: with their prompt, with other options, or from
            another answer.
        already_there: Rows that were there from the same line, and stay as they are.
        differently: Of those, by what differs from what would be made now: `mode`, `model`, `source`, `ids`, `prompt`.
        by_reason: Failures.
        other_answers: Of these, lines whose identity has another answer that `ImportOptions.replace` would replace.
        assumed: `mode` and `model` → which value the lines without one were given.
        statuses: Rebuild statuses of new and replaced rows.
        sources: Source → what decided it → new and replaced rows.
        without_prompt_ids: Why new and replaced rows have no prompt ids.
        prompt_unknown: Rows of all these lines, those that stay included, whose prompt is not known.
    """

    lines: int = 0
    rows: int = 0
    replaced: int = 0
    already_there: int = 0
    failures: int = 0
    differently: Counter[str] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    other_answers: int = 0
    assumed: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    statuses: Counter[str] = field(default_factory=Counter)
    sources: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    without_prompt_ids: Counter[str] = field(default_factory=Counter)
    prompt_unknown: int = 0

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


def count_lines(files: Sequence[Path]) -> int:
    """Lines that are not blank, in all files together: what an import will go through.

    Raises:
        ConfigError: a file cannot be read, or is no file of JSON lines.
        StoreError: there is no line in any of them.
    """
    files = _expanded(files)
    lines = sum(1 for file in files for _ in _lines_of(file))
    if not lines:
        raise _no_lines(files)
    return lines


def import_files(
    dataset: Dataset,
    files: list[Path],
    contract: Contract,
    vocabulary: Vocabulary,
    options: ImportOptions,
    advance: Callable[[int], None] = lambda _: None,
) -> ImportCounts:
    """Import whole files into a dataset; a killed import leaves the dataset's rows as they were.

    Who is killed imports again: what is live is known by identity and by its reply's bytes, and each file's failures
    are written as a whole before its rows are listed.

    Args:
        dataset: Where the rows go; made if it does not exist.
        files: JSON lines; of a prepared dataset also Parquet, Arrow and folders of `Dataset.save_to_disk`. The same
            file twice is read twice.
        contract: The model's contract.
        vocabulary: The contract's vocabulary.
        options: What holds for lines that do not say it themselves.
        advance: Called with the number of lines that have just been done.

    Raises:
        ConfigError: a file cannot be read, an option is wrong, or the dataset holds rows of another contract.
        StoreError: the files hold no line, or the dataset cannot be read or written.
    """
    check_options(options, contract)
    files = _expanded(files)
    with sole_writer(dataset.lock):
        settle_discards(dataset)
        check_contract(dataset, read_live(dataset).contract, contract.name)
        run = _Import(
            dataset=dataset,
            builder=RowBuilder(contract, vocabulary),
            reader=LineReader(
                contract=contract,
                dataset=dataset.name,
                options=options,
                prompts=_prompts_of(dataset, contract),
                tails=prompt_tails(contract, vocabulary),
            ),
            live=LiveRows(dataset),
            advance=advance,
        )
        seal_batches(
            dataset,
            gathered(run.rows_of(files)),
            contract=contract.name,
            replaced=run.replaced,
            before_listing=run.write_failures,
        )
    return run.counts


class _Answer(NamedTuple):
    """An answer that gives a row, what its source was decided by, and whether no row gives way to it."""

    entry: Entry
    reply: Reply
    decided_by: str
    is_new: bool


@dataclass(slots=True, kw_only=True)
class _Import:
    """One import. `seen` are the answers of its own lines that have a row: digest of the body, and place."""

    dataset: Dataset
    builder: RowBuilder
    reader: LineReader
    live: LiveRows
    advance: Callable[[int], None]
    counts: ImportCounts = field(default_factory=ImportCounts)
    seen: dict[Slot, tuple[bytes, str]] = field(default_factory=dict)
    replaced: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    failures: dict[Path, list[Failure]] = field(default_factory=dict)

    def rows_of(self, files: list[Path]) -> Iterator[Columns]:
        """Rows of all lines, some at a time; what gives none is counted and recorded.

        Raises:
            ConfigError: a file cannot be read.
            StoreError: there is no line in any of them.
            ShardError: a live shard cannot be read.
        """
        answers: list[_Answer] = []
        letters = 0
        for file in files:
            # A file that is named twice is still one file.
            failures = self.failures[_resolved(file)] = []
            for number, line in _lines_of(file):
                self.counts.lines += 1
                answer = self._answer_of(f"{printable_name(file)}: line {number}", line, failures)
                self.advance(1)
                if answer is not None:
                    answers.append(answer)
                    letters += len(answer.entry.body)
                if len(answers) >= ANSWERS_AT_ONCE or letters >= LETTERS_AT_ONCE:
                    yield self._made(answers)
                    answers, letters = [], 0
        if not self.counts.lines:
            raise _no_lines(files)
        yield self._made(answers)

    def write_failures(self) -> None:
        """One file of failures for each imported file, replaced as a whole; gone where nothing fails any more.

        Raises:
            StoreError: it cannot be written.
        """
        for file, failures in self.failures.items():
            digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:12]
            path = self.dataset.failures / f"import-{digest}.jsonl"
            if failures or path.exists():
                write_failures(path, failures)

    def _answer_of(self, where: str, content: bytes, failures: list[Failure]) -> _Answer | None:
        """The answer of a line; None where it is none, or there already."""
        try:
            line = self.reader.read(content)
        except LineError as error:
            self._fail(failures, _failure_of_line(error, where))
            return None
        reply = self.builder.read(line.entry, where=where)
        if isinstance(reply, Failure):
            self._fail(failures, _without_keys(reply))
            return None
        source, decided_by = self.reader.source_of(line, provider=reply.provider)
        entry = structs.replace(line.entry, source=source, assumed=_assumed(line.entry, reply))
        there, is_first, earlier, place = self._earlier(entry, where)
        digest = digest_of(entry.body)
        gives_way = is_first and there is not None and _gives_way(entry, there)
        if earlier != digest and not (gives_way and self.reader.options.replace):
            self._fail_other_answer(failures, conflict(entry, where=where, place=where, earlier=place), gives_way)
            return None
        self.seen.setdefault(slot_of(entry), (digest, where))
        if not is_first:
            self.counts.already_there += 1
            return None
        if there is not None:
            if earlier == digest and not self._is_replaced(entry, there):
                self._count_there(entry, there)
                return None
            self.replaced[there.shard].add(there.position)
        return _Answer(entry, reply, decided_by, there is None)

    def _made(self, answers: Sequence[_Answer]) -> Columns:
        rows = self.builder.build_all([(answer.entry, answer.reply) for answer in answers])
        for number, answer in enumerate(answers):
            self._count_row(answer, {name: column[number] for name, column in rows.items()})
        return rows

    def _earlier(self, entry: Entry, where: str) -> tuple[LiveRow | None, bool, bytes, str]:
        """(the live row, whether no line before this one had the slot, digest and place of the slot's answer)."""
        slot = slot_of(entry)
        there = self.live.find(slot)
        if slot in self.seen:
            return there, False, *self.seen[slot]
        if there is not None:
            return there, True, there.body, there.where
        return None, True, digest_of(entry.body), where

    def _is_replaced(self, entry: Entry, there: LiveRow) -> bool:
        """Whether the row that is there gives way: an import's row whose prompt is known now, or where that was asked.

        A prompt that is known is never given up.
        """
        if there.origin == Origin.GENERATE:
            return False
        if entry.messages is None:
            return self.reader.options.replace and there.messages is None and bool(_differences(entry, there))
        return there.messages is None or (self.reader.options.replace and bool(_differences(entry, there)))

    def _count_row(self, answer: _Answer, row: dict[str, Any]) -> None:
        counts = self.counts
        counts.rows += answer.is_new
        counts.replaced += not answer.is_new
        counts.statuses[row["rebuild_status"]] += 1
        counts.sources[answer.entry.source][answer.decided_by] += 1
        for name in answer.entry.assumed:
            counts.assumed[name][str(row[name])] += 1
        if row["prompt_ids"] is None:
            why = next((note for note in row["notes"] if note.startswith("prompt_")), _UNKNOWN_PROMPT)
            counts.without_prompt_ids[why] += 1
            counts.prompt_unknown += why == _UNKNOWN_PROMPT

    def _count_there(self, entry: Entry, there: LiveRow) -> None:
        self.counts.already_there += 1
        if there.origin != Origin.GENERATE:
            self.counts.differently.update(_differences(entry, there))
            self.counts.prompt_unknown += there.messages is None

    def _fail_other_answer(self, failures: list[Failure], failure: Failure, gives_way: bool) -> None:
        self.counts.other_answers += gives_way
        told = f"{failure.detail}; --replace takes the new one" if gives_way else failure.detail
        self._fail(failures, replace(failure, detail=told))

    def _fail(self, failures: list[Failure], failure: Failure) -> None:
        failures.append(failure)
        self.counts.failures += 1
        self.counts.by_reason[failure.reason] += 1


def _gives_way(entry: Entry, there: LiveRow) -> bool:
    """Whether --replace may put another answer in the place of a row: of an imported one, and no prompt is lost.

    A rebuilt row does not say any more whether it was generated, so it stays.
    """
    return there.origin == Origin.IMPORT and (entry.messages is not None or there.messages is None)


def _differences(entry: Entry, there: LiveRow) -> list[str]:
    """What would be another if the row that is there were made now."""
    now = MadeWith(mode=entry.mode, model=entry.model, source=entry.source, ids_are=str(entry.ids_are))
    then = there.made_with
    names = {"mode": "mode", "model": "model", "source": "source", "ids_are": "ids"}
    found = [name for key, name in names.items() if getattr(now, key) != getattr(then, key)]
    known = entry.messages is not None and digest_of(dump_json(entry.messages)) != there.messages
    return [*found, "prompt"] if known else found


def _assumed(entry: Entry, reply: Reply) -> tuple[str, ...]:
    return (*entry.assumed, "model") if reply.model is None else entry.assumed


def _failure_of_line(error: LineError, where: str) -> Failure:
    return Failure(
        reason=error.reason,
        detail=error.detail,
        final=True,
        where=where,
        sample_id=error.sample_id,
        body=error.body,
    )


def _without_keys(failure: Failure) -> Failure:
    """What is no answer may echo the key it was asked with; an answer of another model stays word for word."""
    if failure.reason == "model_mismatch":
        return failure
    body = None if failure.body is None else hide_in_text(failure.body)
    return replace(failure, detail=hide_in_text(failure.detail), body=body)


# --- files ---------------------------------------------------------------------------------------


def printable_name(file: Path) -> str:
    """A file's name as text, where its bytes are no UTF-8 too."""
    return storable_text(file.name)


def _expanded(paths: Sequence[Path]) -> list[Path]:
    """The files to read, each of them something that can be: a dataset's folder stands for its files.

    Raises:
        ConfigError: one cannot be read, or holds something else.
    """
    files = [file for path in paths for file in files_of(path)]
    for file in files:
        _check_file(file)
    return files


def _check_file(file: Path) -> None:
    """Refuse what is no file of JSON lines before anything of it is taken for one.

    Raises:
        ConfigError: it cannot be opened, is no regular file, or holds something packed.
    """
    try:
        with open_regular(file) as opened:
            start = opened.read(8)
    except OSError as error:
        raise ConfigError(f"{file}: expected a file of JSON lines: {error.strerror}") from None
    packed = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
    if packed is not None:
        raise ConfigError(f"{file}: expected JSON lines, found a {packed} file; unpack it first")


def _no_lines(files: Sequence[Path]) -> StoreError:
    return StoreError(f"{', '.join(map(str, files))}: expected JSON lines, found none")


def _lines_of(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from table_lines(file) if is_table(file) else numbered_lines(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None


def _resolved(file: Path) -> Path:
    try:
        return file.resolve()
    except OSError:
        return file.absolute()


def _prompts_of(dataset: Dataset, contract: Contract) -> dict[str, Prompt]:
    if not stands(dataset.prompts):
        return {}
    return {prompt.id: prompt for prompt in read_prompts(dataset.prompts, modes=contract.modes)}


def _plain(value: Json) -> Json:
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
