"""`tokenproof status`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, is_terminal, print_json, printable, say
from toolkit.cli.places import opened, settings_of
from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED, UsageError

if TYPE_CHECKING:
    from toolkit.standing import Standing
    from toolkit.store.workspace import Dataset

_EVERY_S = 1.0


@app.command()
def status(
    name: Annotated[
        str | None, typer.Argument(help="A dataset's folder name, or a unique beginning of it; else all datasets.")
    ] = None,
    root: Root = Path(),
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until no run is at work; Ctrl-C ends looking, not the run.")
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Tell how generation stands, from files alone: while a run is alive, and after it ended or died.

    Exit 0, however it stands. 2: tokenproof.toml has faults. 3: a file cannot be read, and the rest is told all the
    same.
    """
    from toolkit.store.remote import is_remote

    if watch and is_remote(root):
        raise UsageError("status: --watch: expected a local --root; runs write to local folders alone")
    with opened(root, None if name is None else [name]) as workspace:
        settings_of(workspace)  # what to do next is worth nothing where every other command refuses the settings
        names = workspace.dataset_names() if name is None else [workspace.find_dataset(name).name]
        datasets = [workspace.dataset_named(one) for one in names]
        found = _watched(datasets, form, one=name is not None) if watch else _looked(datasets)
        if not watch:
            _print(found, form, one=name is not None)
    raise typer.Exit(EXIT_INCOMPLETE if any(standing.faults for standing in found) else EXIT_PASSED)


def _looked(datasets: Sequence[Dataset]) -> list[Standing]:
    from toolkit.standing import standing_of

    now = time.time()
    return [standing_of(dataset, now) for dataset in datasets]


def _watched(datasets: Sequence[Dataset], form: Form, *, one: bool) -> list[Standing]:
    """Look again and again while a run is at work; how it stood in the end."""
    if form is Form.TEXT and is_terminal(sys.stdout):
        from toolkit.report.live import replaced_lines

        with replaced_lines(sys.stdout) as show:
            return _repeated(datasets, lambda found: show([printable(line) for line in _lines(found, one=one)]))
    told: dict[str, str] = {}
    return _repeated(datasets, lambda found: _tell_changes(found, form, told))


def _repeated(datasets: Sequence[Dataset], show: Callable[[Sequence[Standing]], None]) -> list[Standing]:
    from toolkit.standing import Life

    found: list[Standing] = []
    try:
        while True:
            found = _looked(datasets)
            show(found)
            if not any(standing.life is Life.RUNNING for standing in found):
                break
            time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        pass
    return found


def _tell_changes(found: Sequence[Standing], form: Form, told: dict[str, str]) -> None:
    """A line for each dataset that stands otherwise than when it was last told."""
    from toolkit.report.standing import change_line

    for standing in found:
        line = change_line(standing)
        if told.get(standing.dataset) != line:
            told[standing.dataset] = line
            if form is Form.JSON:
                print_json(standing.as_json())
            else:
                say(line)
    sys.stdout.flush()


def _print(found: Sequence[Standing], form: Form, *, one: bool) -> None:
    if form is Form.JSON:
        print_json(found[0].as_json() if one else {"datasets": [standing.as_json() for standing in found]})
        return
    for line in _lines(found, one=one):
        say(line)


def _lines(found: Sequence[Standing], *, one: bool) -> list[str]:
    from toolkit.report.standing import render_standing, render_standings

    return render_standing(found[0]) if one else render_standings(found)
