"""`tokenproof screen`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, counting, print_json, say
from toolkit.cli.places import workspace_of
from toolkit.errors import EXIT_GATE_CLOSED, EXIT_INCOMPLETE, EXIT_PASSED, UsageError

if TYPE_CHECKING:
    from toolkit.screening import Screened
    from toolkit.store.workspace import Dataset


@app.command()
def screen(
    name: DatasetName,
    root: Root = Path(),
    near_duplicates: Annotated[
        bool, typer.Option("--near-duplicates", help="Look for answers that are nearly an earlier one's (MinHash).")
    ] = False,
    threshold: Annotated[
        float, typer.Option(min=0.5, max=1.0, help="Share of 5-grams of ids in common from which two are told.")
    ] = 0.8,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="Look for 13 words in a row of these prompts, JSON lines or text; may be repeated."),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Exit 1 where a larger share of rows is found than this; 3 where none could be compared."
        ),
    ] = None,
    form: Format = Form.TEXT,
) -> None:
    """List near duplicates, and rows that hold evaluation prompts. Closes no gate by itself."""
    from toolkit.audit.health.overlap import read_evaluation
    from toolkit.screening import screen_near_duplicates, screen_overlap
    from toolkit.store.shards import read_live

    if not near_duplicates and not evaluation:
        raise UsageError("screen: expected --near-duplicates or --evaluation FILE; see tokenproof screen --help")
    dataset = workspace_of(root).find_dataset(name)
    looked_for = read_evaluation(*evaluation) if evaluation else None
    found = []
    rows = read_live(dataset).rows * (near_duplicates + bool(evaluation))
    with counting(f"screen {dataset.name}", rows) as advance:
        if near_duplicates:
            found.append(screen_near_duplicates(dataset, threshold=threshold, advance=advance))
        if looked_for is not None:
            found.append(screen_overlap(dataset, looked_for, advance=advance))
    if form is Form.JSON:
        print_json({"dataset": dataset.name, "screens": [_as_json(one) for one in found]})
    else:
        for line in _lines(dataset, found):
            say(line)
    raise typer.Exit(EXIT_PASSED if fail_above is None else _code_of(found, fail_above))


def _code_of(found: list[Screened], limit: float) -> int:
    """The exit code where a limit was given; a screening that had no row to compare keeps none."""
    if any(one.share > limit for one in found):
        return EXIT_GATE_CLOSED
    return EXIT_PASSED if all(one.compared for one in found) else EXIT_INCOMPLETE


def _as_json(screened: Screened) -> dict[str, object]:
    return {
        "kind": screened.kind, "compared": screened.compared, "found": screened.found, "share": screened.share,
        "same_prompt": screened.same_prompt, "table": str(screened.table), "ids": str(screened.ids),
    }  # fmt: skip


def _lines(dataset: Dataset, found: list[Screened]) -> Iterator[str]:
    for one in found:
        yield f"{dataset.name}: {one.kind}: {one.found:,} of {one.compared:,} rows ({one.share:.2%})"
        if one.same_prompt:
            yield f"  and {one.same_prompt:,} that are nearly another answer to the same prompt"
        if one.found or one.same_prompt:
            yield f"  listed in {one.table}"
        if one.found:
            yield f"  tokenproof discard {dataset.name} --where @{one.ids} --reason {one.kind} takes them out;"
            yield "  take their prompts out of prompts.jsonl first, or generate asks them again"
