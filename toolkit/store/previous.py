"""The verdict of the audit before the last one, kept so that a report can say what got better or worse."""

from __future__ import annotations

from pathlib import Path

from toolkit.errors import StoreError
from toolkit.records import Verdict
from toolkit.store.files import read_bytes, write_atomic
from toolkit.store.verdicts import read_verdict
from toolkit.store.workspace import Dataset

PREVIOUS_NAME = "previous.json"
"""Beside verdict.json."""


def keep_previous(dataset: Dataset) -> None:
    """Copy the verdict that lies there before an audit withdraws it. One that cannot be read is not worth keeping.

    Raises:
        StoreError: the copy cannot be written.
    """
    try:
        read_verdict(dataset.verdict)
        content = read_bytes(dataset.verdict)
    except StoreError:
        return
    write_atomic(_path(dataset), content)


def read_previous(dataset: Dataset) -> Verdict | None:
    """The verdict that was kept; None where there is none, or it is of another version: it proves nothing anyway."""
    try:
        found = read_verdict(_path(dataset))
    except StoreError:
        return None
    return found if found.dataset == dataset.name else None


def _path(dataset: Dataset) -> Path:
    return dataset.reports / PREVIOUS_NAME
