"""`tokenproof audit`, and `audit` for short."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import (
    DatasetName,
    Form,
    Format,
    Root,
    app,
    counting,
    is_terminal,
    print_json,
    printable,
    terminal_width,
)
from toolkit.cli.places import contract_of, settings_of, suites_of, vocabulary_of, workspace_of
from toolkit.errors import EXIT_GATE_CLOSED, EXIT_INCOMPLETE, EXIT_PASSED

if TYPE_CHECKING:
    from toolkit.records import Verdict
    from toolkit.store.workspace import Dataset


@app.command()
def audit(
    name: DatasetName,
    root: Root = Path(),
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Name or file of a suite, instead of the configured ones; may be repeated."),
    ] = None,
    form: Format = Form.TEXT,
) -> None:
    """Audit every row and write verdict, reports and quarantine to reports/NAME/. Exit 0: it may be merged."""
    from toolkit.accounting import accounting
    from toolkit.audit.run import audit as run
    from toolkit.report.console import render_verdict
    from toolkit.store.shards import read_live
    from toolkit.store.verdicts import REPORT_NAMES

    workspace = workspace_of(root)
    dataset = workspace.find_dataset(name)
    settings = settings_of(workspace).dataset(dataset.name)
    contract = contract_of(workspace, settings)
    suites = suites_of(workspace, settings, contract, suite)
    counts = accounting(dataset, contract, settings)
    with counting(f"audit {dataset.name}", read_live(dataset).rows) as advance:
        verdict = run(
            dataset,
            contract,
            lambda: vocabulary_of(contract),
            suites,
            counts,
            allowed_providers=settings.providers,
            report=lambda verdict: write_reports(dataset, verdict),
            tell=lambda sentence: print(printable(f"{dataset.name}: {sentence}"), file=sys.stderr),
            advance=advance,
        )
    if form is Form.JSON:
        print_json(verdict)
    else:
        page = str(dataset.reports / REPORT_NAMES[0])
        sys.stdout.write(render_verdict(verdict, report=page, colour=is_terminal(sys.stdout), width=terminal_width()))
    raise typer.Exit(exit_code_of(verdict))


def exit_code_of(verdict: Verdict) -> int:
    """0 passed; 1 an expectation closed the gate; 3 rows could not be read, or there are none, or not yet all."""
    if verdict.unreadable or not verdict.rows:
        return EXIT_INCOMPLETE
    if not verdict.passed and not verdict.accounting.unsettled:
        return EXIT_GATE_CLOSED
    return EXIT_PASSED if verdict.passed and verdict.complete else EXIT_INCOMPLETE


def write_reports(dataset: Dataset, verdict: Verdict) -> None:
    """Write index.html, junit.xml and summary.md.

    Raises:
        StoreError: one of them cannot be written.
    """
    from toolkit.report.html import render_html
    from toolkit.report.junit import render_junit
    from toolkit.report.summary import render_summary
    from toolkit.store.files import write_atomic
    from toolkit.store.verdicts import REPORT_NAMES

    for name, render in zip(REPORT_NAMES, (render_html, render_junit, render_summary), strict=True):
        write_atomic(dataset.reports / name, render(verdict).encode())
