"""`tokenproof schema`: the JSON Schema of a file that machines read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, print_json
from toolkit.cli.places import workspace_of


@app.command()
def schema(
    name: Annotated[str | None, typer.Argument(help="Of what: verdict. Left out: what there is.")] = None,
    root: Root = Path(),
    form: Format = Form.TEXT,
) -> None:
    """Print the JSON Schema (draft 2020-12) of verdict.json, to hold a file against it; the same for every --root."""
    from toolkit.schemas import NAMES, read_schema

    workspace_of(root)  # every command takes it, and refuses one that is none

    if name is not None:
        sys.stdout.write(read_schema(name))
    elif form is Form.JSON:
        print_json({"schemas": NAMES})
    else:
        sys.stdout.write("".join(f"{one}\n" for one in NAMES))
