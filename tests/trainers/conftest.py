"""The trainers' own environment: their readers run there, and what they read comes back as JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, absent
from tests.flow.workspace import run as run_command

PYTHON = ROOT / ".venv-trainers/bin/python"
READERS = Path(__file__).parent / "readers"

__all__ = ["run_command"]

Read = Callable[..., Any]

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """`read("specforge", path, 2048, out=3)`: a reader's answer; {out} stands at the place `out` of its arguments."""
    if not PYTHON.is_file():
        absent(f"{PYTHON} is missing: make setup-trainers")

    def run(reader: str, *arguments: object, out: int) -> Any:
        answer = tmp_path / f"{reader}.json"
        words = [str(a) for a in arguments]
        words.insert(out, str(answer))
        environment = os.environ | _OFFLINE | {"HF_HOME": str(tmp_path / "hf")}
        command = [str(PYTHON), str(READERS / f"{reader}_reader.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3_000:]
        return json.loads(answer.read_text(encoding="utf-8"))

    return run
