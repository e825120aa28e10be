"""What a command works on: the workspace, its settings, a contract with its vocabulary, suites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.audit.suite import Suite
    from toolkit.config import DatasetSettings, Settings
    from toolkit.contract import Contract
    from toolkit.store.workspace import Workspace
    from toolkit.vocabulary import Vocabulary


def workspace_of(root: Path) -> Workspace:
    """The workspace in the folder `root`."""
    from toolkit.errors import ConfigError
    from toolkit.store.workspace import Workspace

    if not root.is_dir():
        raise ConfigError(f"--root {root}: expected a folder")
    return Workspace(root)


def settings_of(workspace: Workspace) -> Settings:
    """What tokenproof.toml of a workspace says."""
    from toolkit.config import read_settings

    return read_settings(workspace)


def contract_of(workspace: Workspace, settings: DatasetSettings, name: str | None = None) -> Contract:
    """The contract called `name`, or the configured one."""
    from toolkit.contract import read_contract

    return read_contract(name or settings.contract, folder=workspace.contracts)


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

    if name.endswith(".json") or "/" in name:
        path = Path(name)
        return path if path.exists() or path.is_absolute() else workspace.root / path
    own = workspace.expectations / f"{name}.json"
    return own if own.exists() else shipped_suite(name)
