"""`tokenproof generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, is_terminal, print_json, say
from toolkit.cli.places import contract_of, settings_of, vocabulary_of, workspace_of


@app.command()
def generate(
    name: DatasetName,
    root: Root = Path(),
    samples: Annotated[int | None, typer.Option(min=1, help="Answers to each prompt.")] = None,
    url: Annotated[str | None, typer.Option(help="Base URL of the endpoint, instead of the configured one.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=10_000, help="Requests in flight.")] = None,
    form: Format = Form.TEXT,
) -> None:
    """Ask for an answer to every prompt of datasets/NAME/prompts.jsonl that has none yet."""
    import msgspec

    from toolkit.generate.run import generate as run
    from toolkit.report.console import progress

    workspace = workspace_of(root)
    dataset = workspace.find_dataset(name)
    settings = settings_of(workspace)
    of_dataset = settings.dataset(dataset.name)
    if samples is not None:
        of_dataset = msgspec.structs.replace(of_dataset, samples=samples)
    endpoint = settings.endpoint(of_dataset.endpoint)
    if url is not None:
        endpoint = msgspec.structs.replace(endpoint, url=url)
    if concurrency is not None:
        endpoint = msgspec.structs.replace(endpoint, concurrency=concurrency)
    contract = contract_of(workspace, of_dataset)
    with progress(f"generate {dataset.name}", None, enabled=is_terminal()) as advance:
        summary = run(dataset, of_dataset, endpoint, contract, vocabulary_of(contract), advance=advance)
    if form is Form.JSON:
        print_json(summary.as_json())
    else:
        for line in summary.lines():
            say(line)
    raise typer.Exit(summary.exit_code)
