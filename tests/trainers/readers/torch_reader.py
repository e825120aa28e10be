"""torch.load of what was written without torch: `path out.json how`, how = safe, plain or mapped."""

import json
import sys
from pathlib import Path

import torch


def plain(value):
    if isinstance(value, torch.Tensor):
        return {"type": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, dict):
        return [[key, plain(item)] for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, list) else value


def main(path: str, out: str, how: str) -> None:
    loaded = torch.load(path, weights_only=how != "plain", mmap=how == "mapped")
    Path(out).write_text(json.dumps(plain(loaded)), encoding="utf-8")


main(*sys.argv[1:])
