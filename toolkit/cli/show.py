"""`tokenproof show`: one sample id by id, on the terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, is_terminal, print_json, terminal_width, write_text
from toolkit.cli.places import contract_of, opened, settings_of, vocabulary_of
from toolkit.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from toolkit.inspection.model import TokenView
    from toolkit.records import Verdict
    from toolkit.store.workspace import Dataset
    from toolkit.vocabulary import Vocabulary

_ROOM = 160
_CHARACTERS = 1_500
_ALL_CHARACTERS = 200_000
_NAMED = re.compile(r"(.+)/(\d{1,9})/(\d{1,9})")
"""A row as reports name it: sample_id/turn/sample_index."""


@app.command()
def show(
    name: DatasetName,
    sample_id: Annotated[str, typer.Argument(help="A sample's id, or a row as reports name it: ID/TURN/INDEX.")],
    root: Root = Path(),
    turn: Annotated[int | None, typer.Option(min=0, help="Only this turn.")] = None,
    index: Annotated[int | None, typer.Option(min=0, help="Only this answer to the same prompt.")] = None,
    whole: Annotated[bool, typer.Option("--all", help="Every id, not only those around faults and both ends.")] = False,
    form: Format = Form.TEXT,
) -> None:
    """Show a sample's ids with their texts, what is wrong with them and exactly where, and the raw reply."""
    from toolkit.report.tokens import render_view

    with opened(root, [name]) as workspace:
        dataset = workspace.find_dataset(name)
        contract = contract_of(workspace, settings_of(workspace).dataset(dataset.name))
        views = _views(dataset, vocabulary_of(contract), (sample_id, turn, index), whole)
    if form is Form.JSON:
        print_json(views)
        return
    width, colour = terminal_width(), is_terminal(sys.stdout)
    write_text("\n".join(render_view(view, colour=colour, width=width) for view in views))


def _views(
    dataset: Dataset, vocabulary: Vocabulary, asked: tuple[str, int | None, int | None], whole: bool
) -> list[TokenView]:
    """The rows that are asked for.

    Raises:
        ConfigError: there are none.
        ShardError: a shard cannot be read.
    """
    from toolkit.inspection.inspecting import view_sample
    from toolkit.store.shards import read_live

    shards = read_live(dataset).shards
    verdict = _verdict(dataset)
    wanted = [asked]
    if (named := _NAMED.fullmatch(asked[0])) and asked[1:] == (None, None):
        wanted.append((named[1], int(named[2]), int(named[3])))
    for identity in wanted:
        views = view_sample(
            dataset,
            shards,
            identity,
            verdict,
            vocabulary,
            room=None if whole else _ROOM,
            characters=_ALL_CHARACTERS if whole else _CHARACTERS,
        )
        if views:
            return views
    _, turn, index = asked
    place = ("" if turn is None else f", turn {turn}") + ("" if index is None else f", index {index}")
    raise ConfigError(f"sample {asked[0][:80]!r}{place}: expected in the shards of {dataset.name}, found no such row")


def _verdict(dataset: Dataset) -> Verdict | None:
    """The last verdict, if it is of the shards that are live now; without one nothing is known of ways of counting."""
    from toolkit.store.shards import read_live
    from toolkit.store.verdicts import read_verdict

    try:
        verdict = read_verdict(dataset.verdict)
    except StoreError:
        return None
    live = {shard.sha256 for shard in read_live(dataset).shards}
    return verdict if {shard.sha256 for shard in verdict.shards} <= live else None
