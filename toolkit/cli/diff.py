"""`tokenproof diff`: whether an audit came out worse than an earlier one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, print_json, terminal_width, wants_colour, write_text
from toolkit.cli.places import opened
from toolkit.errors import EXIT_GATE_CLOSED, EXIT_PASSED, ConfigError

if TYPE_CHECKING:
    from toolkit.report.comparison import Comparison
    from toolkit.store.workspace import Dataset


@app.command()
def diff(
    name: DatasetName,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            help="verdict.json of an earlier audit, or the folder that holds it; left out: the audit before the last.",
        ),
    ] = None,
    root: Root = Path(),
    tolerance: Annotated[
        float, typer.Option(help="Per cent of the rows by which a share may move before it counts.", min=0, max=100)
    ] = 0.0,
    form: Format = Form.TEXT,
) -> None:
    """Compare the last audit of a dataset with an earlier verdict. Exit 0: nothing got worse; 1: something did.

    Rows, evidence, expectations and providers are compared by their shares; expectations that ask for less count as
    worse. 2: no such file. 3: one of them is no verdict of this version.
    """
    from toolkit.report.comparison import compare
    from toolkit.report.console import render_told
    from toolkit.report.differences import tell_comparison
    from toolkit.store.verdicts import read_verdict

    with opened(root, [name], shards=False) as workspace:
        dataset = workspace.find_dataset(name)
        before = read_verdict(_kept(dataset) if against is None else _verdict_file(against))
        comparison = compare(before, read_verdict(dataset.verdict), tolerance=tolerance / 100)
    if form is Form.JSON:
        print_json(_as_json(comparison))
    else:
        told = tell_comparison(comparison)
        write_text(render_told(told, colour=wants_colour(), width=terminal_width()))
    raise typer.Exit(EXIT_GATE_CLOSED if comparison.worse else EXIT_PASSED)


def _kept(dataset: Dataset) -> Path:
    """The verdict that the last audit took the place of.

    Raises:
        ConfigError: there is none.
    """
    from toolkit.store.previous import PREVIOUS_NAME

    file = dataset.reports / PREVIOUS_NAME
    if not file.exists():
        raise ConfigError(f"{file}: no audit before the last one is kept; name a verdict with --against")
    return file


def _verdict_file(path: Path) -> Path:
    """The file that `--against` names.

    Raises:
        ConfigError: there is none.
    """
    try:
        file = path / "verdict.json" if path.is_dir() else path
        if file.exists():
            return file
        found = "nothing of that name"
    except OSError as error:
        found = error.strerror or str(error)
    raise ConfigError(f"--against {str(path)[:200]}: expected the verdict of an earlier audit, found {found}")


def _as_json(comparison: Comparison) -> dict[str, object]:
    return {
        "worse": len(comparison.worse),
        "better": len(comparison.better),
        "before": comparison.before,
        "after": comparison.after,
        "differs_in": comparison.differs_in,
        "changes": comparison.changes,
        "same_expectations": comparison.same_expectations,
    }
