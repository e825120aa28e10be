"""What a merge's options say, in the place of tokenproof.toml's [merge]."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.mix import MergeSettings
    from toolkit.store.workspace import Dataset


def pairs(option: str, words: Sequence[str] | None) -> dict[str, float]:
    """NAME=NUMBER, once for each name.

    Raises:
        UsageError: not of that form.
    """
    from toolkit.errors import UsageError

    found: dict[str, float] = {}
    for word in words or ():
        name, _, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not name or not 0 <= value <= 2**53 or name in found:
            raise UsageError(f"merge: {option}: expected NAME=NUMBER, once for each name, found {word[:80]!r}")
        found[name] = value
    return found


def mix_of(
    mix: MergeSettings,
    given: Mapping[str, object],
    masks: Mapping[str, object],
    weights: Mapping[str, float],
    limits: Mapping[str, float],
    datasets: Sequence[Dataset],
) -> MergeSettings:
    """The settings of tokenproof.toml with what the options say in their place.

    Raises:
        ConfigError: they do not go together.
    """
    import msgspec

    from toolkit.errors import ConfigError
    from toolkit.mix import mix_faults, with_shares

    names = {dataset.name for dataset in datasets}
    mask = msgspec.structs.replace(mix.mask, **{k: v for k, v in masks.items() if v is not None})
    changed: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    for kind in ("datasets", "sources"):
        changed[kind] = with_shares(
            getattr(mix, kind),
            {name: value for name, value in weights.items() if (name in names) == (kind == "datasets")},
            {name: int(value) for name, value in limits.items() if (name in names) == (kind == "datasets")},
        )
    mixed = msgspec.structs.replace(mix, **changed, mask=mask)
    try:
        mixed = msgspec.convert(msgspec.to_builtins(mixed), type(mix))
    except msgspec.ValidationError as error:
        raise ConfigError(f"merge: {error}") from None
    if faults := list(mix_faults(mixed)):
        raise ConfigError("\n".join(f"merge: {fault}" for fault in faults))
    return mixed
