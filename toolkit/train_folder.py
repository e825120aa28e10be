"""What a new train set may take the place of.

The manifest is written last, into a folder that nobody looks into yet; only then does the folder get
its name. A folder that has its name and a manifest is whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from toolkit.errors import ConfigError, StoreError
from toolkit.manifest import (
    CARD_NAME,
    MANIFEST_NAME,
    SHARDS_NAME,
    TOOL,
    VALIDATION_NAME,
    is_unchanged_card,
    read_manifest,
)
from toolkit.report.text import clean, quantity
from toolkit.store.published import is_free

_SHOWN_CHARACTERS = 60


def check_replaceable(output: Path) -> None:
    """See that nothing but an earlier train set of ours would be replaced.

    Raises:
        ConfigError: `output` is no folder, or holds anything else.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise ConfigError(f"{output}: expected a folder to write the train set to, found a file")
    if is_free(output):
        return
    if not _is_ours(output / MANIFEST_NAME):
        raise ConfigError(
            f"{output}: expected a new or empty folder, or an earlier train set; found files without a "
            f"{MANIFEST_NAME} of tokenproof; they are left as they are"
        )
    foreign = next(_foreign(output), None)
    if foreign is not None:
        raise ConfigError(
            f"{output}: expected nothing but the earlier train set, found {foreign.relative_to(output)}; move it away"
        )


def check_same_datasets(output: Path, names: Collection[str]) -> None:
    """See that an earlier train set that would be replaced was made of the same datasets.

    Raises:
        ConfigError: it was made of others, or its manifest does not say of which.
    """
    if is_free(output):
        return
    try:
        manifest = read_manifest(output)
    except StoreError as error:
        raise ConfigError(f"{error}; merge into another folder, or replace what stands there with --replace") from None
    there = {made.name for made in manifest.inputs}
    if there != set(names):
        raise ConfigError(
            f"{output}: expected a train set of {_listed(names)}, found one of {_listed(there)} "
            f"({quantity(manifest.totals.written, 'row')}); "
            "merge into another folder, or replace it with --replace"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(clean(name, _SHOWN_CHARACTERS) for name in sorted(names)) or "no dataset"


def _is_ours(path: Path) -> bool:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(content, dict) and content.get("tool") == TOOL


def _foreign(output: Path) -> Iterator[Path]:
    """Files in a train set's folder that neither merge nor card writes."""
    for path in sorted(output.iterdir()):
        if path.name in (SHARDS_NAME, VALIDATION_NAME) and path.is_dir():
            yield from (p for p in sorted(path.iterdir()) if not (p.match("part-*.parquet") and p.is_file()))
        elif path.name != MANIFEST_NAME and not (path.name == CARD_NAME and is_unchanged_card(path)):
            yield path
