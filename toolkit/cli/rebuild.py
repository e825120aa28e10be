"""`tokenproof rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, counting, print_json, say
from toolkit.cli.places import contract_of, settings_of, vocabulary_of, workspace_of


@app.command()
def rebuild(
    name: DatasetName,
    root: Root = Path(),
    contract_name: Annotated[
        str | None, typer.Option("--contract", help="Contract to rebuild under; else the configured one.")
    ] = None,
    form: Format = Form.TEXT,
) -> None:
    """Make all rows anew from the stored replies, under a changed contract or another one, without asking anybody."""
    from toolkit.rebuilding import rebuild_rows
    from toolkit.rows import RowBuilder
    from toolkit.store.shards import read_live

    workspace = workspace_of(root)
    dataset = workspace.find_dataset(name)
    settings = settings_of(workspace).dataset(dataset.name)
    contract = contract_of(workspace, settings, contract_name)
    builder = RowBuilder(contract, vocabulary_of(contract))
    with counting(f"rebuild {dataset.name}", read_live(dataset).rows) as advance:
        counts = rebuild_rows(dataset, builder, advance=advance)
    configured = contract_of(workspace, settings).name
    if form is Form.JSON:
        print_json({"dataset": dataset.name, **counts.as_json(), "configured": configured})
        return
    say(
        f"{dataset.name}: {counts.rows_before:,} rows = {counts.rows:,} rebuilt under {contract.name} + "
        f"{counts.failures:,} failures; {counts.ids_changed:,} have other ids than before"
    )
    for title, counted in (("failures", counts.by_reason), ("rows", counts.statuses)):
        if counted:
            say(f"  {title}: " + ", ".join(f"{count:,} {what}" for what, count in counted.most_common()))
    if counts.failures:
        say(f"  each failure with its reason: {dataset.failures}; the old shards: {dataset.folder / 'set_aside'}")
    if configured != contract.name:
        say(f'  tokenproof.toml says contract = "{configured}" for {dataset.name}: change it to "{contract.name}"')
