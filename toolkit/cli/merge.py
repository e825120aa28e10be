"""`tokenproof merge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, print_json, printable, say
from toolkit.cli.places import contract_of, settings_of, suite_name, suite_path, vocabulary_of, workspace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolkit.config import DatasetSettings
    from toolkit.errors import GateClosed
    from toolkit.gate import OpenGate
    from toolkit.store.workspace import Dataset, Workspace


@app.command()
def merge(
    names: Annotated[list[str], typer.Argument(help="Datasets; each must have passed its audit.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the train set.")],
    root: Root = Path(),
    seed: Annotated[int, typer.Option(help="Shuffle: rows stand in the order of sha256(seed + row_key).")] = 0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a train set there that was made of other datasets.")
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Merge audited datasets into one shuffled train set. Refuses whatever was not proved as it lies there now."""
    from toolkit.errors import GateClosed
    from toolkit.manifest import check_replaceable, check_same_datasets
    from toolkit.merge import merge as run
    from toolkit.merge import render_manifest

    workspace = workspace_of(root)
    settings = settings_of(workspace)
    datasets = list(dict.fromkeys(workspace.find_dataset(name) for name in names))
    check_replaceable(output)
    if not replace:
        check_same_datasets(output, {dataset.name for dataset in datasets})
    gates, closed = [], []
    with counting("prove", sum(map(_rows_of, datasets))) as advance:
        for dataset in datasets:
            try:
                gates.append(_open(workspace, dataset, settings.dataset(dataset.name), advance))
            except GateClosed as error:
                closed.append(error)
    if closed:
        _refuse(closed, form)
    with counting("merge", 2 * sum(gate.live.rows for gate in gates)) as advance:
        manifest = run(gates, output, seed=seed, replace=replace, advance=advance)
    if form is Form.JSON:
        print_json(manifest)
        return
    for line in render_manifest(manifest):
        say(line)
    say(f"train set: {output}")


def _rows_of(dataset: Dataset) -> int:
    """Rows that shards.json lists; 0 where it cannot be read, which the gate will say."""
    from toolkit.errors import StoreError
    from toolkit.store.shards import read_live

    try:
        return read_live(dataset).rows
    except StoreError:
        return 0


def _open(
    workspace: Workspace, dataset: Dataset, settings: DatasetSettings, advance: Callable[[int], None]
) -> OpenGate:
    from toolkit.accounting import accounting
    from toolkit.audit.recheck import Rechecker
    from toolkit.gate import open_gate

    contract = contract_of(workspace, settings)
    suites = [(suite_name(name), suite_path(workspace, name)) for name in settings.suites or (contract.name,)]
    recheck = Rechecker(
        dataset=dataset,
        contract=contract,
        suites=[path for _, path in suites],
        allowed_providers=settings.providers,
        load_vocabulary=lambda: vocabulary_of(contract),
        account=lambda: accounting(dataset, contract, settings),
        tell=lambda sentence: print(printable(f"{dataset.name}: {sentence}"), file=sys.stderr),
        advance=advance,
    )
    return open_gate(dataset, contract, suites, allowed_providers=settings.providers, recheck=recheck)


def _refuse(closed: Sequence[GateClosed], form: Form) -> None:
    """Name every reason of every dataset, for machines by dataset, and end.

    Raises:
        GateClosed: of all of them, for people.
        typer.Exit: where machines were told.
    """
    from toolkit.errors import EXIT_GATE_CLOSED, GateClosed

    reasons = [reason for error in closed for reason in error.reasons]
    message = "\n".join(str(error) for error in closed)
    if form is not Form.JSON:
        raise GateClosed(message, reasons)
    datasets = [{"dataset": e.dataset, "reasons": e.reasons, "next": e.commands} for e in closed]
    print_json(
        {
            "error": "GateClosed",
            "exit_code": EXIT_GATE_CLOSED,
            "message": printable(message),
            "reasons": reasons,
            "datasets": datasets,
        }
    )
    raise typer.Exit(EXIT_GATE_CLOSED)
