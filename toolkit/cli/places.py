"""What a command works on: the workspace, its settings, a contract with its vocabulary, suites."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.audit.suite import Suite
    from toolkit.config import DatasetSettings, Settings
    from toolkit.contract import Contract
    from toolkit.store.remote import Use
    from toolkit.store.workspace import Workspace
    from toolkit.vocabulary import Vocabulary


def workspace_of(root: Path) -> Workspace:
    """The workspace in the folder `root`.

    Raises:
        ConfigError: it is no folder.
    """
    from toolkit.errors import ConfigError
    from toolkit.store.remote import is_remote, shown_root
    from toolkit.store.workspace import Workspace

    if is_remote(root):
        raise ConfigError(f"--root {shown_root(root)}: expected a local folder: this command works on nothing else")
    try:
        if root.is_dir():
            return Workspace(root)
        found = "a file" if root.exists() else "nothing of that name"
    except OSError as error:
        found = error.strerror or str(error)
    raise ConfigError(f"--root {str(root)[:200]}: expected a folder, found {found}")


@contextmanager
def opened(
    root: Path, datasets: Collection[str] | None, *, use: Use | None = None, shards: bool = True
) -> Iterator[Workspace]:
    """The workspace in a folder, or one in object storage for as long as a stage works on it.

    Args:
        root: The folder, or s3://BUCKET/FOLDER.
        datasets: The datasets that are needed, or a unique beginning of each name; None for all.
        use: What the stage does with them; None: it reads.
        shards: Whether it needs shards and facts as files.

    Raises:
        ConfigError: it is none, or there is no such dataset.
        StoreError: something cannot be fetched or put back.
    """
    from toolkit.errors import TokenproofError
    from toolkit.store.remote import Use, fetched, is_remote, place_of

    if not is_remote(root):
        yield workspace_of(root)
        return
    place = place_of(root)
    with fetched(place, datasets, use=use or Use.READ, shards=shards) as folder:
        try:
            yield replace(workspace_of(folder), place=str(place))
        except TokenproofError as error:
            # Nobody knows the copy; what is wrong is wrong where the workspace lies.
            error.args = tuple(str(part).replace(str(folder), str(place)) for part in error.args)
            raise


def lies_at(workspace: Workspace, path: Path) -> str:
    """Where something of a workspace lies for good."""
    return str(path) if workspace.place is None else f"{workspace.place}/{path.relative_to(workspace.root)}"


def settings_of(workspace: Workspace) -> Settings:
    """What tokenproof.toml of a workspace says."""
    from toolkit.config import read_settings

    return read_settings(workspace)


def contract_of(workspace: Workspace, settings: DatasetSettings, name: str | None = None) -> Contract:
    """The contract called `name`, or the configured one."""
    return contract_named(workspace, name or settings.contract)


def contract_named(workspace: Workspace, name: str) -> Contract:
    """A contract by name or path; relative paths in it or to it count from here, else from the workspace."""
    import msgspec

    from toolkit.contract import is_contract_path, read_contract

    named = _here_or_below(workspace, Path(name)) if is_contract_path(name) else name
    contract = read_contract(named, folder=workspace.contracts)
    kind, _, folder = contract.vocabulary.source.partition(":")
    if kind != "folder":
        return contract
    source = f"folder:{_here_or_below(workspace, Path(folder).expanduser())}"
    return msgspec.structs.replace(contract, vocabulary=msgspec.structs.replace(contract.vocabulary, source=source))


def vocabulary_of(contract: Contract) -> Vocabulary:
    """The proved vocabulary of a contract."""
    from toolkit.vocabulary import load_vocabulary

    return load_vocabulary(contract)


def suites_of(
    workspace: Workspace, settings: DatasetSettings, contract: Contract, chosen: list[str] | None
) -> list[tuple[Suite, Path]]:
    """The suites that were chosen, else the configured ones, else the contract's own."""
    from toolkit.audit.suite import read_suite

    paths = [suite_path(workspace, name) for name in chosen or settings.suites or (contract.name,)]
    return [(read_suite(path), path) for path in paths]


def suite_name(name: str) -> str:
    """A suite's name, of a name or of a path."""
    return Path(name).stem if name.endswith(".json") else name


def suite_path(workspace: Workspace, name: str) -> Path:
    """A suite by path, or by name from expectations/, else the shipped one."""
    from toolkit.audit.suite import shipped_suite
    from toolkit.store.files import stands

    if name.endswith(".json") or "/" in name:
        return _here_or_below(workspace, Path(name))
    own = workspace.expectations / f"{name}.json"
    return own if stands(own) else shipped_suite(name)


def _here_or_below(workspace: Workspace, path: Path) -> Path:
    """A path as it is if it leads somewhere from here, else from the workspace's folder."""
    from toolkit.store.files import stands

    return path if path.is_absolute() or stands(path) else workspace.root / path
