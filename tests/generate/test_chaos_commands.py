"""`tokenproof generate` as a process of its own, with its preflight: interrupted, and answered by strangers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.generate.summary import RunSummary
from toolkit.simulate.scenario import Scenario
from toolkit.store.journal import count_entries, journal_files, read_failures
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .conftest import KEY, endpoint_at, write_prompts
from .test_chaos import books_of_server, rows_of
from .test_crash import wait_for
from .test_secret_nowhere import finished

PROMPTS = 60


def generating(root: Path, url: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable, "-m", "toolkit", "generate", "B3", "--url", f"{url}/api/v1", "--concurrency", "6",
            "--format", "json", "--root", str(root), *words,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPENROUTER_API_KEY": KEY},
    )  # fmt: skip


def check_all_there_once(dataset: Dataset, entries: list[Any], *, lost: int) -> None:
    """Each prompt has one row; what was billed is a row, but for what was lost."""
    rows = rows_of(dataset)
    assert Counter(row["sample_id"] for row in rows) == Counter(f"p{i}" for i in range(PROMPTS))
    billed = {entry.id for entry in entries if entry.billed}
    kept = {row["request_id"] for row in rows}
    assert kept <= billed
    assert len(billed - kept) == lost


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_once_it_drains_says_3_and_goes_on_where_it_was(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path, number: signal.Signals
):
    write_prompts(dataset, [f"What comes after {i}?" for i in range(PROMPTS)])
    with books_of_server(kimi, vocabulary, Scenario(latency_s=(0.1, 0.3))) as (url, entries):
        process = generating(tmp_path, url)
        wait_for(lambda: count_entries(dataset.journal) >= 8 or process.poll() is not None)
        process.send_signal(number)
        code, out, err = finished(process)
        told = json.loads(out)
        assert (code, told["interrupted"], told["stopped"], told["lost"]) == (3, True, "interrupted", 0), err
        assert journal_files(dataset.journal) == []
        assert told["answered"] == told["requests"] == len(entries) == len(rows_of(dataset)) < PROMPTS
        code, out, err = finished(generating(tmp_path, url))
        assert (code, json.loads(out)["answered"]) == (0, PROMPTS - told["answered"]), err
        assert len(entries) == PROMPTS
    check_all_there_once(dataset, entries, lost=0)


@pytest.mark.slow
def test_interrupted_twice_it_stops_at_once_says_3_and_what_was_lost(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path
):
    write_prompts(dataset, [f"What comes after {i}?" for i in range(PROMPTS)])
    with books_of_server(kimi, vocabulary, Scenario(latency_s=(0.0, 2.0))) as (url, entries):
        process = generating(tmp_path, url)
        wait_for(lambda: count_entries(dataset.journal) >= 8 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        code, out, err = finished(process)
        took_s = time.monotonic() - began
        told = json.loads(out)
        assert (code, told["interrupted"]) == (3, True), err
        assert told["lost"] > 0
        assert took_s < 10
        stopped = [failure.sample_id for failure in read_failures(dataset.failures)]
        assert len(stopped) == told["lost"]
        assert count_entries(dataset.journal) == told["answered"]
        code, out, err = finished(generating(tmp_path, url))
        assert (code, json.loads(out)["rows_sealed"]) == (0, PROMPTS), err
        wait_for(lambda: all(entry.ended is not None for entry in entries))
    check_all_there_once(dataset, entries, lost=told["lost"])


def test_a_reply_of_an_excluded_provider_is_never_a_row_and_the_summary_says_so(
    dataset: Dataset, run: Any, kimi: Contract, vocabulary: Vocabulary
):
    write_prompts(dataset, [f"What comes after {i}?" for i in range(PROMPTS)])
    with books_of_server(kimi, vocabulary, Scenario(faults={"other_provider": 0.15})) as (url, entries):
        endpoint = endpoint_at(url, provider={"ignore": ["inceptron"]})
        runs: list[RunSummary] = []
        while not (runs and runs[-1].complete):
            assert len(runs) < 12
            runs.append(run(endpoint))
    strange = {entry.id: entry for entry in entries if entry.provider == "Inceptron"}
    assert len(strange) >= 5
    assert all(entry.billed for entry in strange.values())
    rows = rows_of(dataset)
    assert Counter(row["sample_id"] for row in rows) == Counter(f"p{i}" for i in range(PROMPTS))
    assert {row["provider"] for row in rows} <= {"Chutes", "ModelRun"}
    assert not {row["request_id"] for row in rows} & set(strange)
    assert sum(summary.failures["provider_not_allowed"] for summary in runs) == len(strange)
    assert any("provider_not_allowed" in line for line in runs[0].lines())
    # Paid for all the same: on file with what came and what it cost.
    failures = list(read_failures(dataset.failures))
    assert {f.reason for f in failures} == {"provider_not_allowed"}
    assert all("expected none of inceptron, found 'Inceptron'" in f.detail for f in failures)
    assert sum(f.cost_usd or 0 for f in failures) == pytest.approx(sum(e.cost_usd for e in strange.values()))
    assert sum(summary.cost_usd for summary in runs) == pytest.approx(sum(entry.cost_usd for entry in entries))
