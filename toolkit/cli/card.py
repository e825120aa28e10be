"""`tokenproof card`: a dataset card for a train set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, print_json, say, write_text
from toolkit.cli.places import workspace_of
from toolkit.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from toolkit.manifest import OutputFile


@app.command()
def card(
    folder: Annotated[Path, typer.Argument(help="Folder of a train set.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; left out: standard output.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it is there.")] = False,
    root: Root = Path(),
    form: Format = Form.TEXT,
) -> None:
    """Write a dataset card (README.md for the Hugging Face hub) from the manifest of a train set."""
    from toolkit.manifest import MANIFEST_NAME, read_manifest
    from toolkit.report.card import render_card
    from toolkit.store.files import sha256_of, stands, write_atomic

    workspace_of(root)  # every command takes it, and refuses one that is none
    if not folder.is_dir():
        raise ConfigError(f"{str(folder)[:200]}: expected the folder of a train set, found no folder")
    manifest = read_manifest(folder)
    files = (*manifest.outputs, *manifest.validation_outputs)
    text = render_card(
        manifest,
        manifest_sha256=sha256_of(folder / MANIFEST_NAME),
        sizes={file.path: _uncompressed(folder / file.path, file) for file in files},
    )
    if output is None:
        if form is Form.JSON:
            print_json({"card": text})
        else:
            write_text(text)
        return
    if not replace and stands(output):
        raise ConfigError(f"{str(output)[:200]}: expected a new file, found one; replace it with --replace")
    write_atomic(output, text.encode())
    if form is Form.JSON:
        print_json({"card": str(output)})
    else:
        say(f"dataset card: {output}; state the license in its first lines")


def _uncompressed(path: Path, file: OutputFile) -> int:
    """Bytes of a Parquet file's columns without compression, from its footer.

    Raises:
        StoreError: it cannot be read, or has other bytes or another number of rows than the manifest says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from toolkit.store.files import open_regular, sha256_of, unreadable

    # What the card says of the rows is true of these bytes alone.
    if (sha256 := sha256_of(path)) != file.sha256:
        raise StoreError(
            f"{path}: expected the bytes that the manifest states (sha256 {file.sha256[:16]}…), found others "
            f"({sha256[:16]}…)"
        )
    try:
        with open_regular(path) as opened:
            found = pq.ParquetFile(opened).metadata
    except OSError as error:
        raise unreadable(path, error) from None
    except pa.ArrowException as error:
        raise StoreError(f"{path}: expected a file of the train set: {str(error).splitlines()[0][:200]}") from None
    if found.num_rows != file.rows:
        raise StoreError(f"{path}: expected {file.rows:,} rows as the manifest says, found {found.num_rows:,}")
    return sum(int(found.row_group(number).total_byte_size) for number in range(found.num_row_groups))
