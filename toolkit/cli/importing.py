"""`tokenproof import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, is_terminal, print_json, say
from toolkit.cli.places import contract_of, settings_of, vocabulary_of, workspace_of


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="Dataset to import into, its whole name; made if it does not exist.")],
    files: Annotated[
        list[Path], typer.Argument(help="OpenAI batch output, raw_responses.jsonl or recorded traffic: JSON lines.")
    ],
    root: Root = Path(),
    mode: Annotated[str | None, typer.Option(help="Mode of lines that state none.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of lines that name none.")] = None,
    source: Annotated[str | None, typer.Option(help="Source of lines that do not show theirs.")] = None,
    contract_name: Annotated[str | None, typer.Option("--contract", help="Contract; else the configured one.")] = None,
    local_ids_are_engine: Annotated[
        bool,
        typer.Option(
            "--local-ids-are-engine",
            help="Ids of local lines came from the engine itself (lines with a cost, a gen- id, usage details or a "
            "provider never do).",
        ),
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Import answers that you already have."""
    from toolkit.importing import ImportOptions, import_files
    from toolkit.report.console import progress

    workspace = workspace_of(root)
    dataset = workspace.dataset_named(name)
    contract = contract_of(workspace, settings_of(workspace).dataset(dataset.name), contract_name)
    options = ImportOptions(mode=mode, model=model, source=source, local_ids_are_engine=local_ids_are_engine)
    with progress(f"import into {dataset.name}", None, enabled=is_terminal()) as advance:
        counts = import_files(dataset, files, contract, vocabulary_of(contract), options, advance)
    if form is Form.JSON:
        print_json({"dataset": dataset.name, **counts.as_json()})
        return
    say(
        f"{dataset.name}: {counts.lines:,} lines = {counts.rows:,} rows + {counts.failures:,} failures + "
        f"{counts.already_there:,} already there"
    )
    for title, counted in (("failures", counts.by_reason), ("assumed", counts.assumed), ("rows", counts.statuses)):
        if counted:
            say(f"  {title}: " + ", ".join(f"{count:,} {what}" for what, count in counted.most_common()))
    if counts.failures:
        say(f"  each failure with its line and reason: {dataset.failures}")
