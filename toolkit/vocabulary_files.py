"""The files of a vocabulary as a model's repository has them: ranks, special ids, what is done to text first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from toolkit.errors import ContractError
from toolkit.store.files import read_regular


def read_ranks(path: Path, holes: Collection[int]) -> list[bytes]:
    """Base tokens by id; a rank file has no line for a hole."""
    base: list[bytes] = []
    ids = (i for i in count() if i not in holes)
    for (number, line), expected in zip(enumerate(path.read_bytes().splitlines(), 1), ids, strict=False):
        if not line:
            continue
        token, _, rank = line.partition(b" ")
        try:
            if int(rank) != expected:
                raise ContractError(f"{path}: line {number}: expected rank {expected}, found {int(rank)}")
            base += [b""] * (expected - len(base))
            base.append(base64.b64decode(token, validate=True))
        except (ValueError, binascii.Error):
            raise ContractError(f"{path}: line {number}: expected base64 and a rank, found {line[:40]!r}") from None
    return base


def added_tokens(path: Path) -> dict[str, int]:
    """Special spellings and ids of a tokenizer_config.json."""
    try:
        config = msgspec.json.decode(read_regular(path))
        return {entry["content"]: int(token_id) for token_id, entry in config["added_tokens_decoder"].items()}
    except FileNotFoundError:
        raise ContractError(f"{path}: missing; it holds the ids of special tokens") from None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ContractError(f"{path}: expected added_tokens_decoder {{id: {{content}}}}: {error!r}") from None


def normalizer_of(entry: dict[str, Any] | None) -> str | None:
    """What a tokenizer.json does to text first; None for nothing."""
    if entry is None or (entry["type"] == "Sequence" and not entry["normalizers"]):
        return None
    return str(entry["type"])
