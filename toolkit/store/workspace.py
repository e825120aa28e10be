"""Where things lie: one folder with datasets/, expectations/, reports/ and tokenproof.toml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import ConfigError, StoreError

_LONGEST_NAME = 200
"""Bytes of a dataset's name: systems allow 255, and temporary files put a little around theirs."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Paths of one dataset. `place` is its workspace in object storage, s3://…, where it lies there for good."""

    name: str
    folder: Path
    reports: Path
    place: str | None = None

    @property
    def prompts(self) -> Path:
        """Chat messages, one prompt a line; written by the user."""
        return self.folder / "prompts.jsonl"

    @property
    def journal(self) -> Path:
        """Replies that are not sealed yet."""
        return self.folder / "journal"

    @property
    def shards(self) -> Path:
        """Sealed rows."""
        return self.folder / "shards"

    @property
    def live(self) -> Path:
        """The list of live shards."""
        return self.folder / "shards.json"

    @property
    def failures(self) -> Path:
        """Requests and imported lines that gave no answer."""
        return self.folder / "failures"

    @property
    def facts(self) -> Path:
        """Measured facts, one file a shard."""
        return self.folder / "facts"

    @property
    def lock(self) -> Path:
        """Held by whoever writes."""
        return self.folder / ".lock"

    @property
    def verdict(self) -> Path:
        """What the last audit found."""
        return self.reports / "verdict.json"

    @property
    def quarantine(self) -> Path:
        """Rows that the last audit keeps out of the merge."""
        return self.reports / "quarantine.parquet"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder that commands work in. `place` is where it lies for good, s3://…, if that is object storage."""

    root: Path
    place: str | None = None

    @property
    def datasets(self) -> Path:
        """One folder a dataset."""
        return self.root / "datasets"

    @property
    def expectations(self) -> Path:
        """The user's suites."""
        return self.root / "expectations"

    @property
    def contracts(self) -> Path:
        """The user's contracts."""
        return self.root / "contracts"

    def dataset_named(self, name: str) -> Dataset:
        """The paths of a dataset called exactly `name`, whether it exists or not.

        Raises:
            ConfigError: the name is not that of a folder directly below datasets/, or not one that can be printed.
        """
        if fault := _name_fault(name):
            raise ConfigError(f"dataset {name[:80]!r}: expected the name of a folder below {self.datasets}, {fault}")
        return Dataset(name=name, folder=self.datasets / name, reports=self.root / "reports" / name, place=self.place)

    def find_dataset(self, prefix: str) -> Dataset:
        """The dataset whose folder is called `prefix`, or the only one that begins so.

        Raises:
            ConfigError: none, or several.
            StoreError: datasets/ cannot be read.
        """
        self.dataset_named(prefix)
        names = self.dataset_names()
        if not names and not self.datasets.is_dir():
            raise ConfigError(
                f"dataset {prefix!r}: {self.datasets} is missing; expected a folder for each dataset in it"
            )
        return self.dataset_named(choose_name(prefix, names, str(self.datasets)))

    def dataset_names(self) -> list[str]:
        """All datasets, sorted by name.

        Raises:
            ConfigError: datasets/ is no folder.
            StoreError: it cannot be read.
        """
        try:
            return sorted(p.name for p in self.datasets.iterdir() if p.is_dir() and not p.name.startswith("."))
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise ConfigError(f"{self.datasets}: expected a folder, found a file") from None
        except OSError as error:
            raise StoreError(f"{self.datasets}: cannot be read: {error.strerror or error}") from None


def choose_name(prefix: str, names: Sequence[str], where: str) -> str:
    """The name that is `prefix`, or the only one that begins so; `where` says in messages where they stand.

    Raises:
        ConfigError: none, or several.
    """
    if prefix in names:
        return prefix
    matches = [name for name in names if name.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"dataset {prefix!r}: expected one, found {len(matches)}: {_some(matches)}")
    raise ConfigError(f"dataset {prefix!r}: no such folder in {where}; found {_some(names)}")


def _name_fault(name: str) -> str | None:
    """Why no dataset can be called `name`; None where one can."""
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        return "without / and \\, and not beginning with a dot"
    if not name.isprintable():
        return "in printable UTF-8"
    size = len(name.encode())
    return f"of at most {_LONGEST_NAME} bytes, found {size:,}" if size > _LONGEST_NAME else None


def _some(names: Sequence[str], shown: int = 20) -> str:
    """Names for a message, which a folder of thousands does not make unreadable."""
    more = len(names) - shown
    return (", ".join(names[:shown]) or "none") + (f" and {more:,} more" if more > 0 else "")
