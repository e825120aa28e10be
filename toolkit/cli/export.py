"""`tokenproof export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, print_json, say
from toolkit.cli.places import contract_named, vocabulary_of, workspace_of
from toolkit.export.readers import TEXT_ONLY, Algorithm, Longer, Split, Target

if TYPE_CHECKING:
    from toolkit.contract import Contract
    from toolkit.export.parity import ParityCheck
    from toolkit.export.report import ExportReport
    from toolkit.export.train_set import TrainSet
    from toolkit.export.window import Marks
    from toolkit.manifest import Manifest
    from toolkit.store.workspace import Workspace


@app.command()
def export(
    train: Annotated[Path, typer.Argument(help="Folder of a train set, as merge wrote it.")],
    to: Annotated[Target, typer.Option("--to", help="Trainer that will read it.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the export; else export/TRAIN/TRAINER in --root."),
    ] = None,
    root: Root = Path(),
    split: Annotated[Split, typer.Option(help="Side of the train set's split.")] = Split.TRAIN,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of a row at most. Without it rows are written as they are.")
    ] = None,
    longer: Annotated[Longer, typer.Option(help="What becomes of longer rows.")] = Longer.CUT,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens at most, over all rows: rows in their (shuffled) order, up to the first too many."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(help="What the trainer's own window will be set to; else --max-length, else its default."),
    ] = None,
    algorithm: Annotated[
        Algorithm | None, typer.Option(help="What SpecForge trains; it decides which rows it drops.")
    ] = None,
    draft_vocab_size: Annotated[
        int | None, typer.Option(help="Write the map for a drafter that knows so many of the most frequent tokens.")
    ] = None,
    target_vocab_size: Annotated[
        int | None, typer.Option(help="Tokens that the target knows; else the contract's.")
    ] = None,
    parity_rows: Annotated[
        int, typer.Option(help="Rows to render again and compare, for trainers that take text; 0: none.")
    ] = 2_000,
    form: Format = Form.TEXT,
) -> None:
    """Write a train set in the form that a trainer reads, ids untouched, and say what that trainer will drop and cut.

    Exit 3: the train set is not what its manifest states.
    """
    from toolkit.export.run import ExportOptions
    from toolkit.export.run import export as export_ids
    from toolkit.export.text_run import export_text

    workspace = workspace_of(root)
    options = ExportOptions(
        target=to, algorithm=algorithm, max_length=max_length, longer=longer, max_ids=max_tokens, reader_window=window,
        draft_vocab_size=draft_vocab_size, target_vocab_size=target_vocab_size,
    )  # fmt: skip
    train_set, contract = _opened(workspace, train, split)
    folder = output if output is not None else _default_output(root, train, to, split)
    with counting(f"export for {to}", train_set.rows) as advance:
        if to in TEXT_ONLY:
            parity = _parity(to, contract, parity_rows)
            report = export_text(train_set, folder, options, parity, advance)
        else:
            report = export_ids(train_set, folder, options, _marks(contract), advance)
    _print(report, folder, form)


def _default_output(root: Path, train: Path, to: Target, split: Split) -> Path:
    return root / "export" / train.resolve().name / (to if split is Split.TRAIN else f"{to}-{split}")


def _opened(workspace: Workspace, train: Path, split: Split) -> tuple[TrainSet, Contract | None]:
    from dataclasses import replace

    from toolkit.export.train_set import open_train_set

    train_set = open_train_set(train, split=split)
    contract = _contract_of(workspace, train_set.manifest)
    return replace(train_set, vocab_size=contract.vocab_size if contract else None), contract


def _contract_of(workspace: Workspace, manifest: Manifest) -> Contract | None:
    """The contract that the rows were made under; None where there is none of that name and hash here.

    An export needs it only to say where cuts fall, to bound the ids and to render text: ids are written without it.
    """
    from toolkit.errors import ContractError

    try:
        contract = contract_named(workspace, manifest.contract)
    except ContractError:
        return None
    return contract if contract.sha256 == manifest.contract_sha256 else None


def _marks(contract: Contract | None) -> Marks | None:
    from toolkit.export.marks import marks_of

    return None if contract is None else marks_of(contract)


def _parity(to: Target, contract: Contract | None, rows: int) -> ParityCheck | None:
    from toolkit.export.parity import ParityCheck

    if contract is None or rows < 1:
        return None
    return ParityCheck(target=to, contract=contract, vocabulary=vocabulary_of(contract), rows=rows)


def _print(report: ExportReport, folder: Path, form: Form) -> None:
    from toolkit.export.report import render_report

    if form is Form.JSON:
        print_json(report)
        return
    for line in render_report(report):
        say(line)
    say(f"export: {folder}")
