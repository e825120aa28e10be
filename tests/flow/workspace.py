"""A workspace with one dataset of good answers, made through the commands; and the commands, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolkit.cli import main
from toolkit.vocabulary import Vocabulary

END_THINK, TERMINAL = 163607, 163586


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`run("audit", "B3", root=…)` is `tokenproof audit B3 --root …`."""

    def command(*words: str, root: Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tokenproof", *words, "--root", str(root)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return command


def ids_of(vocabulary: Vocabulary, reasoning: str, content: str) -> list[int]:
    """A complete thinking output, spelled out."""
    return [*vocabulary.encode_ordinary(reasoning), END_THINK, *vocabulary.encode_ordinary(content), TERMINAL]


def batch_line(vocabulary: Vocabulary, number: int, **changes: Any) -> dict[str, Any]:
    """One line of OpenAI batch output: a good thinking answer by Chutes, which counts every id."""
    reasoning, content = f" They ask for number {number}.", f" The number is {number}, as everybody knows."
    body: dict[str, Any] = {
        "id": f"gen-{number}",
        "provider": "Chutes",
        "model": "moonshotai/kimi-k2.5-0127",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "native_finish_reason": "stop",
                "message": {"role": "assistant", "content": content, "reasoning": reasoning},
            }
        ],
        "usage": {"prompt_tokens": None, "completion_tokens": len(ids_of(vocabulary, reasoning, content))},
    }
    body |= changes
    return {"custom_id": f"q{number}", "response": {"status_code": 200, "body": body}}


def write_lines(path: Path, lines: list[Any]) -> Path:
    """JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def write_prompts(root: Path, name: str, count: int) -> None:
    """prompts.jsonl for q0 … q{count − 1}."""
    lines = [{"id": f"q{i}", "messages": [{"role": "user", "content": f"Number {i}?"}]} for i in range(count)]
    write_lines(root / "datasets" / name / "prompts.jsonl", lines)
