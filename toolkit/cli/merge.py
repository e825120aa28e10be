"""`tokenproof merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, is_terminal, print_json, say
from toolkit.cli.places import contract_of, settings_of, suite_name, suite_path, workspace_of


@app.command()
def merge(
    names: Annotated[list[str], typer.Argument(help="Datasets; each must have passed its audit.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the train set.")],
    root: Root = Path(),
    seed: Annotated[int, typer.Option(help="Shuffle: rows stand in the order of sha256(seed + row_key).")] = 0,
    form: Format = Form.TEXT,
) -> None:
    """Merge audited datasets into one shuffled train set. Refuses whatever was not proved as it lies there now."""
    from toolkit.errors import GateClosed
    from toolkit.gate import open_gate
    from toolkit.merge import merge as run
    from toolkit.merge import render_manifest
    from toolkit.report.console import progress

    workspace = workspace_of(root)
    settings = settings_of(workspace)
    gates, closed = [], []
    for dataset in dict.fromkeys(workspace.find_dataset(name) for name in names):
        of_dataset = settings.dataset(dataset.name)
        contract = contract_of(workspace, of_dataset)
        suites = [(suite_name(n), suite_path(workspace, n)) for n in of_dataset.suites or (contract.name,)]
        try:
            gates.append(open_gate(dataset, contract, suites))
        except GateClosed as error:
            closed.append(error)
    if closed:
        reasons = [reason for error in closed for reason in error.reasons]
        raise GateClosed("\n".join(str(error) for error in closed), reasons)
    with progress("merge", None, enabled=is_terminal()) as advance:
        manifest = run(gates, output, seed=seed, advance=advance)
    if form is Form.JSON:
        print_json(manifest)
        return
    for line in render_manifest(manifest):
        say(line)
    say(f"train set: {output}")
