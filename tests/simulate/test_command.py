"""`tokenproof simulate` as a process: scenario, seed, ledger, and an end by signal."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from .client import request


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "toolkit", "simulate", *options]


def test_a_scenario_is_served_and_its_books_are_kept(tmp_path: Path) -> None:
    scenario, ledger = tmp_path / "mine.toml", tmp_path / "ledger.jsonl"
    scenario.write_text("canned_bytes = 4096\nseed = 2\n[faults]\nblank_lines = 1.0\n")
    options = ("--scenario", str(scenario), "--ledger", str(ledger), "--seed", "5", "--format", "json")
    with subprocess.Popen(command(*options), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told["seed"] == 5
            asked = urllib.request.Request(
                told["url"] + "/chat/completions",
                data=json.dumps(request("x")).encode(),
                headers={"Authorization": "Bearer x", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=20) as response:
                body = response.read()
        finally:
            process.terminate()
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, b"")
    reply = json.loads(body)
    assert body.startswith(b"\n")
    assert 2_000 < len(body) < 8_000
    received, answered, ended = (json.loads(line) for line in ledger.read_bytes().splitlines())
    assert (received["step"], answered["id"], ended["delivered"]) == ("received", reply["id"], True)


def test_people_are_told_that_any_key_will_do_and_what_to_run() -> None:
    with subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
        finally:
            process.terminate()
        _, told = process.communicate(timeout=20)
    assert "any key will do" in told
    assert "export OPENROUTER_API_KEY=any" in told
    assert f"tokenproof generate NAME --url {url}" in told


def test_a_faulty_scenario_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[faults]\nhttp_418 = 0.1\n")
    done = subprocess.run(command("--scenario", str(path)), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "http_418" in done.stderr
    done = subprocess.run(command("--ledger", str(tmp_path / "no" / "file")), capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
