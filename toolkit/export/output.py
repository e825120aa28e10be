"""The folder of an export: it appears whole, and takes the place of nothing but an earlier export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from toolkit.errors import ConfigError
from toolkit.store.published import is_free

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
    if is_free(output):
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


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if not path.is_dir() or path.is_symlink())
