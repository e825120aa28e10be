"""What an audit leaves: verdict.json, quarantine.parquet and the reports."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.columns import QUARANTINE_SCHEMA
from toolkit.errors import StoreError
from toolkit.records import VERDICT_VERSION, Verdict
from toolkit.store.files import read_bytes, sha256_of, write_atomic, write_whole
from toolkit.store.workspace import Dataset

REPORT_NAMES = ("index.html", "junit.xml", "summary.md")
"""Files that tell of a verdict, beside it."""


def withdraw_verdict(dataset: Dataset) -> None:
    """Remove what an earlier audit left, the verdict first: nobody shall go by it any more.

    Raises:
        StoreError: it cannot be removed.
    """
    for path in (dataset.verdict, *(dataset.reports / name for name in REPORT_NAMES), dataset.quarantine):
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StoreError(f"{path}: cannot be removed: {error.strerror or error}") from None


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Replace verdict.json.

    Raises:
        StoreError: it cannot be written.
    """
    write_atomic(path, msgspec.json.format(msgspec.json.encode(verdict)) + b"\n")


def read_verdict(path: Path) -> Verdict:
    """The verdict of the last audit.

    Raises:
        StoreError: missing, not a verdict, or of another version.
    """
    if not path.exists():
        raise StoreError(f"{path}: missing; run the audit first")
    content = read_bytes(path)
    try:
        version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("version")
        if version is None or bytes(version) != str(VERDICT_VERSION).encode():
            found = "none" if version is None else bytes(version).decode()[:20]
            raise StoreError(f"{path}: expected verdict version {VERDICT_VERSION}, found {found}; audit again")
        return msgspec.json.decode(content, type=Verdict)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"{path}: expected a verdict: {error}") from None


def write_quarantine(path: Path, table: pa.Table) -> str:
    """Replace quarantine.parquet by a table of `QUARANTINE_SCHEMA`; its sha256.

    Raises:
        StoreError: it cannot be written.
    """

    def write(temporary: Path) -> None:
        pq.write_table(table.cast(QUARANTINE_SCHEMA), temporary, compression="zstd", write_page_checksum=True)

    write_whole(path, write)
    return sha256_of(path)


def read_quarantine(path: Path) -> pa.Table:
    """Rows that are kept out of the merge.

    Raises:
        StoreError: missing, altered or no quarantine file.
    """
    if not path.exists():
        raise StoreError(f"{path}: missing; run the audit again")
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
        return table.cast(QUARANTINE_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise StoreError(f"{path}: cannot be read: {first[:200]}") from None
