"""A folder for what one audit needs and nobody after it: beside the dataset, since the system's own may be memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.store.workspace import Dataset

_PREFIX = ".audit-"
_LOCK = "lock"


@contextmanager
def scratch_folder(dataset: Dataset) -> Iterator[Path]:
    """A folder that is gone afterwards, however the block is left. What a killed audit left is removed first.

    Where the dataset's folder cannot be written, as it may be for a merge, the system's temporary folder serves.
    """
    _remove_abandoned(dataset.folder)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=dataset.folder))
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix=f"tokenproof{_PREFIX}"))
    handle = os.open(folder / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The lock ends with the process: a folder whose lock can be had belongs to nobody.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _remove_abandoned(parent: Path) -> None:
    """Remove folders of audits that are not alive any more; one that cannot be removed is in nobody's way."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            handle = os.open(folder / _LOCK, os.O_WRONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
