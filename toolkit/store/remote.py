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
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from toolkit.errors import ConfigError, StoreError, UnreachableError
from toolkit.store.verdicts import REPORT_NAMES
from toolkit.store.workspace import choose_name

_ROOT = re.compile(r"s3:/{1,2}([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)
"""A path of the system makes one slash of two."""

_KEYS = re.compile(r"(s3:/{1,2}).*@", re.DOTALL)

_CONNECTIONS = 8
_ATTEMPTS = 5
_CHUNK = 8 << 20
_WORKSPACE_FILES = ("tokenproof.toml", "phrases.toml")
_WORKSPACE_FOLDERS = ("expectations", "contracts")
_VERDICT = "verdict.json"
_TASKS_OWN = ("shards", "facts")
"""Folders of a dataset that tasks on other machines fetch from, and put to."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workspace lies: a bucket, and what all names in it begin with ("" for the whole bucket)."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class Use(StrEnum):
    """What a stage does with a workspace.

    READ changes nothing. REPORT makes reports anew, which are put back. AUDIT makes facts, reports and the verdict
    anew: reports and verdict that stand there are removed at once, and what it made is put back when it ends.
    """

    READ = "read"
    REPORT = "report"
    AUDIT = "audit"


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
        raise ConfigError(f"--root {shown_root(root)}: expected s3://BUCKET or s3://BUCKET/FOLDER")
    return Place(found[1], prefix)


def shown_root(root: str | Path) -> str:
    """A root as messages name it: other tools take keys before an @ in it, which are nobody's to read."""
    text = str(root)
    return _KEYS.sub(r"\1***@", text)[:200] if is_remote(text) else text[:200]


@contextmanager
def fetched(place: Place, datasets: Collection[str] | None, *, use: Use, shards: bool = True) -> Iterator[Path]:
    """A folder with the workspace's settings, suites and contracts, and datasets with their reports.

    Args:
        place: Where it lies.
        datasets: The datasets' folder names, or a unique beginning of each; None for all of them.
        use: What the stage does; it is put back also if it ends by an error.
        shards: Fetch shards and facts too. Else whoever measures fetches shards and puts facts there by itself.

    Raises:
        ConfigError: there is no such dataset, or there are several.
        StoreError: something cannot be listed, fetched, put or removed.
    """
    bucket = Bucket(place)
    bucket.check()
    if datasets is not None:
        there = bucket.dataset_names()
        datasets = sorted({choose_name(name, there, f"{place}/datasets") for name in datasets})
    with tempfile.TemporaryDirectory(prefix="tokenproof-") as temporary:
        root = Path(temporary)
        kinds = ("datasets", "reports")
        below = kinds if datasets is None else [f"{kind}/{name}" for kind in kinds for name in datasets]
        left = () if shards else _TASKS_OWN
        before = bucket.fetch_all([*_WORKSPACE_FILES, *_WORKSPACE_FOLDERS, *below], root, without=left)
        for name in datasets or ():
            (root / "datasets" / name).mkdir(parents=True, exist_ok=True)
        (root / "datasets").mkdir(exist_ok=True)
        if use is Use.AUDIT:
            own = (name for name in before if name.startswith("reports/"))
            withdrawn = [name for name in own if Path(name).name in (_VERDICT, *REPORT_NAMES)]
            bucket.remove(withdrawn)
            before = {name: stamp for name, stamp in before.items() if name not in withdrawn}
        try:
            yield root
        finally:
            if use is not Use.READ:
                bucket.put_changes(root, before, without=left)


class Bucket:
    """Objects below a place, by their names relative to it."""

    def __init__(self, place: Place):
        self.place = place
        self._files = _connect()

    def names(self, below: str) -> list[str]:
        """Names of the object `below` or of all below it.

        Raises:
            StoreError: they cannot be listed, or one of them names a place outside a folder.
        """
        return list(self._infos(below))

    def _infos(self, below: str) -> dict[str, Any]:
        """`names` with what is listed of each: `size` in bytes, `mtime_ns`."""
        from pyarrow.fs import FileSelector, FileType

        if below:
            self._check_name(below)
        with self._faults(below, "be listed"):
            info = self._files.get_file_info(self._path(below))
            if info.type == FileType.File:
                return {below: info}
            found = self._files.get_file_info(FileSelector(self._path(below), allow_not_found=True, recursive=True))
        start = len(self._path("").rstrip("/")) + 1
        infos = {file.path[start:]: file for file in found if file.type == FileType.File}
        for name in infos:
            self._check_name(name)
        return infos

    def _check_name(self, name: str) -> None:
        if not all(_is_name(part) for part in name.split("/")):
            raise StoreError(f"{self.place}: {name[:200]!r}: expected a name that a file can have")

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

    def open(self, name: str) -> Any:
        """An object as a file that can be read from anywhere in it.

        Raises:
            FileNotFoundError: there is none.
            UnreachableError: it cannot be read.
        """
        from pyarrow.fs import FileType

        with self._faults(name, "be read"):
            if self._files.get_file_info(self._path(name)).type == FileType.File:
                return self._files.open_input_file(self._path(name))
        raise FileNotFoundError(f"{self.place}/{name}")

    def fetch(self, name: str, root: Path) -> bool:
        """Fetch one object to the same name below `root`; False where there is none.

        Raises:
            StoreError: it cannot be fetched, or is shorter than it was listed.
        """
        from pyarrow.fs import FileType

        self._check_name(name)
        with self._faults(name, "be fetched"):
            found = self._files.get_file_info(self._path(name))
        if found.type != FileType.File:
            return False
        self._fetch(name, found, root / name)
        return True

    def put(self, root: Path, name: str) -> None:
        """Put the file `name` below `root` to the same name there.

        Raises:
            StoreError: it cannot be put.
        """
        self._put(root / name, name)

    def fetch_all(
        self, below: Sequence[str], root: Path, *, without: Collection[str] = ()
    ) -> dict[str, tuple[int, int]]:
        """Fetch all objects below some names to the same names below `root`, as old as they are there.

        Args:
            below: The names.
            root: The folder.
            without: Folders of datasets that are left out.

        Returns:
            Name → size and modification time (ns) of the fetched file.

        Raises:
            StoreError: something cannot be listed or fetched, or is shorter than it was listed.
        """
        infos = {name: info for each in below for name, info in self._infos(each).items()}
        infos = {name: info for name, info in infos.items() if not _is_in(name, without)}
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(lambda name: self._fetch(name, infos[name], root / name), infos))
        return {name: _stamp(root / name) for name in infos}

    def put_changes(self, root: Path, before: dict[str, tuple[int, int]], *, without: Collection[str] = ()) -> None:
        """Put what is new or changed below reports/ and facts/, the verdict last, and remove what is gone.

        Args:
            root: The folder.
            before: What `fetch_all` gave, without what was removed since.
            without: Folders of datasets that are left as they are there.

        Raises:
            StoreError: something cannot be put or removed.
        """
        made = {
            str(path.relative_to(root)): path
            for path in sorted(root.rglob("*"))
            if path.is_file()
            and _is_result(path.relative_to(root))
            and not _is_in(str(path.relative_to(root)), without)
        }
        changed = [name for name, path in made.items() if before.get(name) != _stamp(path)]
        ordinary = [name for name in changed if Path(name).name != _VERDICT]
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(lambda name: self._put(made[name], name), ordinary))
        self.remove(name for name in before if _is_result(Path(name)) and name not in made)
        for name in (name for name in changed if Path(name).name == _VERDICT):
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

    def _fetch(self, name: str, listed: Any, path: Path) -> None:
        with self._faults(name, "be fetched"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._files.open_input_stream(self._path(name)) as source, path.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
            # Whether a shard is younger than its verdict is asked of the copies, too.
            os.utime(path, ns=(listed.mtime_ns, listed.mtime_ns))
        if (found := path.stat().st_size) != (size := listed.size):
            raise UnreachableError(f"{self.place}/{name}: expected {size:,} bytes, fetched {found:,}")

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
            # What the system itself refuses, such as room on the disk, bears a number; what the storage does, none.
            kind = UnreachableError if error.errno is None else StoreError
            raise kind(f"{self.place}{f'/{name}' if name else ''}: cannot {what}: {reason}") from None


def _connect() -> Any:
    """The storage service that the environment names; transient errors are tried again by the client itself.

    `pyarrow` does not read the variables for an endpoint by itself.

    Raises:
        ConfigError: the environment names an endpoint that is none.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options: dict[str, Any] = {"retry_strategy": AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        if scheme not in ("", "http", "https") or not host:
            # Not repeated: it may hold a password.
            raise ConfigError("AWS_ENDPOINT_URL: expected http://HOST:PORT or https://HOST, found another scheme")
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


def _is_in(name: str, folders: Collection[str]) -> bool:
    """Whether something lies in one of these folders of a dataset: datasets/NAME/FOLDER/…"""
    parts = name.split("/")
    return parts[0] == "datasets" and len(parts) > 3 and parts[2] in folders


def _is_name(part: str) -> bool:
    return part not in ("", ".", "..") and not any(c in part for c in "\0\\\r\n") and len(part.encode()) <= 255


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
