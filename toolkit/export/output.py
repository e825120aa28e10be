"""The folder of an export: it appears whole, and takes the place of nothing but an earlier export."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from toolkit.errors import ConfigError, StoreError
from toolkit.store.files import sole_writer, sync_folder

REPORT_NAME = "export-report.json"
"""Written last; names every other file of the folder."""


class _Named(msgspec.Struct):
    path: str


class _Earlier(msgspec.Struct):
    """What of an earlier report tells its files."""

    tool: str
    files: list[_Named]


def check_replaceable(output: Path) -> None:
    """See that nothing but an earlier export would be replaced.

    Raises:
        ConfigError: `output` is no folder, or holds anything that no export of ours wrote.
    """
    if not output.exists() or (output.is_dir() and next(output.iterdir(), None) is None):
        return
    if not output.is_dir():
        raise ConfigError(f"{output}: expected a folder to export to, found a file")
    try:
        earlier = msgspec.json.decode((output / REPORT_NAME).read_bytes(), type=_Earlier)
    except (OSError, msgspec.MsgspecError):
        earlier = None
    if earlier is None or earlier.tool != "tokenproof":
        raise ConfigError(
            f"{output}: expected a new or empty folder, or an earlier export; found files without an {REPORT_NAME} "
            "of tokenproof; they are left as they are"
        )
    ours = {REPORT_NAME, *(file.path for file in earlier.files)}
    foreign = next((path for path in _files(output) if str(path.relative_to(output)) not in ours), None)
    if foreign is not None:
        raise ConfigError(
            f"{output}: expected nothing but the earlier export, found {foreign.relative_to(output)} (a trainer's, "
            "perhaps); move it away or export into another folder"
        )


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """A new, empty folder that takes the place of `output` once the block ends without an error.

    It lies hidden beside `output`; what a killed export left there is removed here first.

    Raises:
        ConfigError: `output` holds something that is not ours to replace.
        StoreError: another export writes there, or the file system refuses.
    """
    output = output.resolve()
    if not output.name:
        raise ConfigError(f"{output}: expected a folder below another one to export to")
    work = output.with_name(f".{output.name}.exporting")
    try:
        check_replaceable(output)
        with sole_writer(output.with_name(f".{output.name}.lock")):
            _clear(output, work)
            try:
                fresh = work / "new"
                fresh.mkdir(parents=True)
                yield fresh
                check_replaceable(output)
                if output.exists():
                    output.rename(work / "old")
                fresh.rename(output)
                sync_folder(output.parent)
            finally:
                _clear(output, work)
    except OSError as error:
        raise StoreError(f"{error.filename or output}: cannot be read or written: {error.strerror or error}") from None


def _clear(output: Path, work: Path) -> None:
    """Remove what an export left. An earlier one that it had moved out of the way goes back first."""
    old = work / "old"
    if old.exists() and not output.exists():
        old.rename(output)
    shutil.rmtree(work, ignore_errors=True)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if not path.is_dir() or path.is_symlink())
