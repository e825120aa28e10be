"""Workspaces in object storage: `s3://bucket/prefix` fetched into a folder, and what a stage made put back.

A stage works on the folder as on any other. Whole objects are fetched and put, as an object store replaces objects
whole; the verdict is removed first and put last, so a gate is open there only if everything else lies there. There are
no locks: one stage at a time may write to a dataset. Credentials, region and endpoint come from the environment, where
AWS' own tools look for them (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL` …).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ConfigError, StoreError
from toolkit.store.verdicts import REPORT_NAMES
from toolkit.store.workspace import choose_name

_ROOT = re.compile(r"s3:/{1,2}([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)
"""A path of the system makes one slash of two."""

_CONNECTIONS = 8
_ATTEMPTS = 5
_CHUNK = 8 << 20
_WORKSPACE_FILES = ("tokenproof.toml", "phrases.toml")
_WORKSPACE_FOLDERS = ("expectations", "contracts")
_VERDICT = "verdict.json"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workspace lies: a bucket, and what all names in it begin with ("" for the whole bucket)."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def is_remote(root: str | Path) -> bool:
    """Whether a root is meant to lie in object storage."""
    return str(root).startswith("s3:/")


def place_of(root: str | Path) -> Place:
    """The place that a root names.

    Raises:
        ConfigError: it is none of the form s3://bucket/prefix.
    """
    found = _ROOT.fullmatch(str(root))
    prefix = (found[2] or "").strip("/") if found else ""
    if found is None or not all(_is_name(part) for part in prefix.split("/") if prefix):
        raise ConfigError(f"--root {str(root)[:200]}: expected s3://BUCKET or s3://BUCKET/FOLDER")
    return Place(found[1], prefix)


@contextmanager
def fetched(place: Place, dataset: str | None, *, writes: bool) -> Iterator[Path]:
    """A folder with the workspace's settings, suites and contracts, and one dataset with its reports.

    Args:
        place: Where it lies.
        dataset: The dataset's folder name, or a unique beginning of it; None for all of them.
        writes: The stage makes facts, reports and a verdict: those that stand there are removed at once, and what it
            made is put back when it ends, also if by an error.

    Raises:
        ConfigError: there is no such dataset, or there are several.
        StoreError: something cannot be listed, fetched, put or removed.
    """
    bucket = Bucket(place)
    bucket.check()
    if dataset is not None:
        dataset = choose_name(dataset, bucket.dataset_names(), f"{place}/datasets")
    with tempfile.TemporaryDirectory(prefix="tokenproof-") as temporary:
        root = Path(temporary)
        below = [f"{kind}/{dataset}" if dataset else kind for kind in ("datasets", "reports")]
        before = bucket.fetch_all([*_WORKSPACE_FILES, *_WORKSPACE_FOLDERS, *below], root)
        (root / "datasets").mkdir(exist_ok=True)
        if writes:
            withdrawn = [name for name in before if Path(name).name in (_VERDICT, *REPORT_NAMES)]
            bucket.remove(withdrawn)
            before = {name: stamp for name, stamp in before.items() if name not in withdrawn}
        try:
            yield root
        finally:
            if writes:
                bucket.put_changes(root, before)


class Bucket:
    """Objects below a place, by their names relative to it."""

    def __init__(self, place: Place):
        self.place = place
        self._files = _connect()

    def names(self, below: str) -> dict[str, int]:
        """Names of the object `below` or of all below it, with their sizes in bytes.

        Raises:
            StoreError: they cannot be listed, or one of them names a place outside a folder.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._faults(below, "be listed"):
            info = self._files.get_file_info(self._path(below))
            if info.type == FileType.File:
                return {below: info.size}
            found = self._files.get_file_info(FileSelector(self._path(below), allow_not_found=True, recursive=True))
        start = len(self._path("").rstrip("/")) + 1
        sizes = {file.path[start:]: file.size for file in found if file.type == FileType.File}
        for name in sizes:
            if not all(_is_name(part) for part in name.split("/")):
                raise StoreError(f"{self.place}: {name[:200]!r}: expected a name that a file can have")
        return sizes

    def check(self) -> None:
        """See that the bucket is there.

        Raises:
            StoreError: it is not, or cannot be reached.
        """
        from pyarrow.fs import FileType

        with self._faults("", "be listed"):
            found = self._files.get_file_info(self.place.bucket)
        if found.type == FileType.NotFound:
            raise StoreError(f"{self.place}: expected a bucket, found none of that name")

    def dataset_names(self) -> list[str]:
        """All datasets, sorted by name.

        Raises:
            StoreError: they cannot be listed.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._faults("datasets", "be listed"):
            found = self._files.get_file_info(FileSelector(self._path("datasets"), allow_not_found=True))
        return sorted(file.base_name for file in found if file.type == FileType.Directory)

    def fetch_all(self, below: Sequence[str], root: Path) -> dict[str, tuple[int, int]]:
        """Fetch all objects below some names to the same names below `root`.

        Returns:
            Name → size and modification time (ns) of the fetched file.

        Raises:
            StoreError: something cannot be listed or fetched, or is shorter than it was listed.
        """
        sizes = {name: size for each in below for name, size in self.names(each).items()}
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(lambda name: self._fetch(name, sizes[name], root / name), sizes))
        return {name: _stamp(root / name) for name in sizes}

    def put_changes(self, root: Path, before: dict[str, tuple[int, int]]) -> None:
        """Put what is new or changed below reports/ and facts/, the verdict last, and remove what is gone.

        Raises:
            StoreError: something cannot be put or removed.
        """
        made = {
            str(path.relative_to(root)): path
            for path in sorted(root.rglob("*"))
            if path.is_file() and _is_result(path.relative_to(root))
        }
        changed = [name for name, path in made.items() if before.get(name) != _stamp(path)]
        ordinary = [name for name in changed if Path(name).name != _VERDICT]
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(lambda name: self._put(made[name], name), ordinary))
        self.remove(name for name in before if _is_result(Path(name)) and name not in made)
        for name in (name for name in made if Path(name).name == _VERDICT):
            self._put(made[name], name)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; one that is gone is fine.

        Raises:
            StoreError: one cannot be removed.
        """
        for name in names:
            with self._faults(name, "be removed"):
                try:
                    self._files.delete_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _fetch(self, name: str, size: int, path: Path) -> None:
        with self._faults(name, "be fetched"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._files.open_input_stream(self._path(name)) as source, path.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
        if (found := path.stat().st_size) != size:
            raise StoreError(f"{self.place}/{name}: expected {size:,} bytes, fetched {found:,}; it is being written")

    def _put(self, path: Path, name: str) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        with self._faults(name, "be written"):
            copy_files(
                str(path), self._path(name), source_filesystem=LocalFileSystem(), destination_filesystem=self._files
            )
            found, size = self._files.get_file_info(self._path(name)).size, path.stat().st_size
        if found != size:
            raise StoreError(f"{self.place}/{name}: expected {size:,} bytes written, found {found}")

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.place.bucket, self.place.prefix, name) if part)

    @contextmanager
    def _faults(self, name: str, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = " ".join(str(error).split())[:300]
            raise StoreError(f"{self.place}{f'/{name}' if name else ''}: cannot {what}: {reason}") from None


def _connect() -> Any:
    """The storage service that the environment names; transient errors are tried again by the client itself.

    `pyarrow` does not read the variables for an endpoint by itself.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options: dict[str, Any] = {"retry_strategy": AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        options["region"] = region or "us-east-1"
    return S3FileSystem(**options)


def _is_result(name: Path) -> bool:
    """Whether an audit makes files of that name: reports/…, datasets/NAME/facts/…; locks and the like stay here."""
    parts = name.parts
    hidden = any(part.startswith(".") for part in parts)
    return not hidden and (parts[0] == "reports" or (parts[0] == "datasets" and parts[2:3] == ("facts",)))


def _is_name(part: str) -> bool:
    return part not in ("", ".", "..") and not any(c in part for c in "\0\\\r\n") and len(part.encode()) <= 255


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
