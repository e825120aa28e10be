"""`tokenproof discard`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, print_json, say
from toolkit.cli.places import contract_of, settings_of, vocabulary_of, workspace_of
from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED, UsageError

if TYPE_CHECKING:
    from toolkit.discarding import DiscardOutcome
    from toolkit.store.discards import Discarded
    from toolkit.store.workspace import Dataset


@app.command()
def discard(
    name: DatasetName,
    root: Root = Path(),
    where: Annotated[
        str | None,
        typer.Option(
            help="Which rows: FIELD=VALUE, != < > too, a comma between conditions that must all hold. Fields are the "
            "columns of a row and its facts, note=CODE, shard=part-00003, and after an audit reason=EXPECTATION and "
            "quarantined=true; @FILE: a sample_id a line. "
            "Example: provider=Chutes,created<2026-03-01"
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows and show some; change nothing.")] = False,
    undo: Annotated[
        str | None, typer.Option(metavar="ID", help="Put the rows of a discard back, if none was answered anew.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what was discarded.")] = False,
    form: Format = Form.TEXT,
) -> None:
    """Take replies out of a dataset, with a reason; they are asked again. Exit 3: no row was chosen."""
    if [where is not None, undo is not None, listed].count(True) != 1:
        raise UsageError("discard: expected one of --where, --undo and --list; see tokenproof discard --help")
    if where is None and (dry_run or reason is not None):
        raise UsageError("discard: --reason and --dry-run belong to --where")
    if where is not None and reason is None and not dry_run:
        raise UsageError('discard: expected --reason "why", for the record')
    workspace = workspace_of(root)
    dataset = workspace.find_dataset(name)
    if listed:
        _list(dataset, form)
    elif undo is not None:
        _undo(dataset, undo, form)
    elif where is not None:
        raise typer.Exit(_discard(dataset, where, None if dry_run else reason, root, form))


def _discard(dataset: Dataset, text: str, reason: str | None, root: Path, form: Form) -> int:
    """Discard, or only choose where there is no reason; the exit code."""
    from toolkit.discarding import choose_rows, discard_where
    from toolkit.rows import RowBuilder
    from toolkit.store.row_filter import parse_where

    workspace = workspace_of(root)
    contract = contract_of(workspace, settings_of(workspace).dataset(dataset.name))
    where = parse_where(text, _ids_in)
    if reason is None:
        outcome = choose_rows(dataset, where, contract)
    else:
        outcome = discard_where(dataset, where, reason, contract, lambda: RowBuilder(contract, vocabulary_of(contract)))
    if form is Form.JSON:
        print_json({"dataset": dataset.name, **_as_json(outcome)})
    else:
        for line in _lines(dataset, outcome, where.text):
            say(line)
    return EXIT_PASSED if outcome.rows else EXIT_INCOMPLETE


def _ids_in(name: str) -> list[str]:
    """The lines of a file of sample_ids that are not blank."""
    from toolkit.errors import ConfigError
    from toolkit.store.files import numbered_lines

    try:
        return [line.decode() for _, line in numbered_lines(Path(name))]
    except UnicodeDecodeError as error:
        raise ConfigError(f"--where: @{name}: expected UTF-8, found another byte at {error.start} of a line") from None
    except OSError as error:
        raise ConfigError(f"--where: @{name}: cannot be read: {error.strerror or error}") from None


def _undo(dataset: Dataset, discard_id: str, form: Form) -> None:
    from toolkit.store.discards import undo_discard

    record = undo_discard(dataset, discard_id)
    if form is Form.JSON:
        print_json({"dataset": dataset.name, "restored": record})
    else:
        say(f"{dataset.name}: {record.rows:,} rows of {record.id} are back")


def _list(dataset: Dataset, form: Form) -> None:
    from toolkit.store.discards import read_discards

    records = read_discards(dataset)
    if form is Form.JSON:
        print_json({"dataset": dataset.name, "discards": records})
    else:
        for line in _listed(dataset, records):
            say(line)


def _as_json(outcome: DiscardOutcome) -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(outcome)
    return fields


def _lines(dataset: Dataset, outcome: DiscardOutcome, where: str) -> list[str]:
    lines = [f"{dataset.name}: {outcome.sealed:,} replies sealed first"] if outcome.sealed else []
    if outcome.unsealed:
        lines.append(f"{dataset.name}: {outcome.unsealed:,} replies in the journal are not looked at until sealed")
    if not outcome.rows:
        return [*lines, f"{dataset.name}: none of {outcome.of:,} rows matches {where}; nothing was discarded"]
    record = outcome.discarded
    what = f"would discard {outcome.rows:,}" if record is None else f"{record.id}: discarded {outcome.rows:,}"
    lines.append(f"{dataset.name}: {what} of {outcome.of:,} rows")
    for example in outcome.examples:
        lines.append("  " + ", ".join(f"{key} {value}" for key, value in example.items() if value is not None))
    if outcome.rows > len(outcome.examples):
        lines.append(f"  … and {outcome.rows - len(outcome.examples):,} more")
    if record is not None:
        lines.append("  generate asks them again, where prompts.jsonl has them; until then")
        lines.append(f"  tokenproof discard {dataset.name} --undo {record.id} puts them back")
    return lines


def _listed(dataset: Dataset, records: Sequence[Discarded]) -> list[str]:
    if not records:
        return [f"{dataset.name}: nothing was discarded"]
    return [
        f"{record.id}  {record.at}  {record.rows:,} rows  {record.state}  by {record.by}"
        f"{'' if record.where is None else f'  where {record.where}'}  {record.reason}"
        for record in records
    ]
