"""`tokenproof index`: one page over all datasets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolkit.cli.app import Form, Format, Root, app, print_json, terminal_width, wants_colour, write_text
from toolkit.cli.places import workspace_of
from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED, StoreError

if TYPE_CHECKING:
    from toolkit.report.index import Entry
    from toolkit.store.workspace import Dataset, Workspace


@app.command()
def index(root: Root = Path(), form: Format = Form.TEXT) -> None:
    """Write reports/index.html: all datasets, the state of each gate, and links to their reports.

    Exit 0, however the gates stand. 3: a file cannot be read, and the rest is told all the same.
    """
    from toolkit.report.console import render_told
    from toolkit.report.index import tell_index

    workspace = workspace_of(root)
    entries, page = write_index(workspace)
    if form is Form.JSON:
        print_json({"page": str(page), "datasets": [_as_json(entry) for entry in entries]})
    else:
        told = tell_index(entries, str(page))
        write_text(render_told(told, colour=wants_colour(), width=terminal_width()))
    raise typer.Exit(EXIT_INCOMPLETE if any(entry.standing.faults for entry in entries) else EXIT_PASSED)


def write_index(workspace: Workspace) -> tuple[Sequence[Entry], Path]:
    """Write the page; its entries, and where it lies.

    Raises:
        ConfigError: datasets/ is no folder.
        StoreError: the page cannot be written.
    """
    from toolkit.report.index import render_index
    from toolkit.store.files import write_atomic

    entries = [_entry(workspace.dataset_named(name)) for name in workspace.dataset_names()]
    page = workspace.root / "reports" / "index.html"
    created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_atomic(page, render_index(entries, created_at=created_at).encode())
    return entries, page


def _entry(dataset: Dataset) -> Entry:
    from toolkit.report.index import Entry
    from toolkit.standing import standing_of
    from toolkit.store.verdicts import REPORT_NAMES, read_verdict

    try:
        verdict = read_verdict(dataset.verdict)
    except StoreError:
        verdict = None  # its standing says what is wrong with it
    page = dataset.reports / REPORT_NAMES[0]
    return Entry(standing=standing_of(dataset, time.time()), verdict=verdict, page=page.is_file())


def _as_json(entry: Entry) -> dict[str, object]:
    verdict = entry.verdict
    return {
        "dataset": entry.standing.dataset,
        "gate": entry.standing.gate,
        "reasons": entry.standing.gate_reasons,
        "rows": entry.standing.rows,
        "quarantined": None if verdict is None else verdict.quarantined,
        "evidence": None if verdict is None else verdict.evidence,
        "audited": None if verdict is None else verdict.created_at,
        "faults": entry.standing.faults,
    }
