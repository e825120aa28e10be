"""Killed, interrupted, out of space: no counted reply is lost, and nothing that was answered is asked again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolkit.accounting import accounting
from toolkit.config import DatasetSettings
from toolkit.contract import Contract, read_contract
from toolkit.errors import ConfigError, StoreError
from toolkit.generate.outcome import Answered, Judge
from toolkit.generate.summary import RunSummary
from toolkit.generate.transport import Request, Response
from toolkit.records import Prompt
from toolkit.rows import RowBuilder
from toolkit.sealing import seal_journal
from toolkit.simulate.answers import prompt_key
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
from toolkit.store.files import sole_writer
from toolkit.store.journal import LineWriter, count_entries, journal_files, read_entries, read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .asks import plan_asks
from .conftest import KEY, endpoint_at, write_prompts
from .server import Scripted, completion, in_thread

Run = Callable[..., RunSummary]
Server = tuple[Scripted, str]

CHILD = """
import resource
import sys
from pathlib import Path
import msgspec
from toolkit.config import DatasetSettings, parse_settings
from toolkit.contract import read_contract
from toolkit.generate.run import generate
from toolkit.store.workspace import Workspace
from toolkit.vocabulary import load_vocabulary

root, url, concurrency, largest_file = sys.argv[1:]
if int(largest_file):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest_file), int(largest_file)))
kimi = read_contract("kimi-k2.5")
endpoint = msgspec.structs.replace(
    parse_settings(b"", "x").endpoint("openrouter"), url=url + "/api/v1", concurrency=int(concurrency)
)
dataset = Workspace(Path(root)).dataset_named("B3")
summary = generate(dataset, DatasetSettings(max_tokens=256), endpoint, kimi, load_vocabulary(kimi))
print(msgspec.json.encode(summary).decode())
"""


@contextmanager
def child(tmp_path: Path, url: str, *, concurrency: int = 4, largest_file: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own; ended at the end, whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), url, str(concurrency), str(largest_file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPENROUTER_API_KEY": KEY},
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def requests_of(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/simulator/ledger?ids=0") as reply:
        return json.load(reply)["requests"]


def key_of(text: str) -> str:
    return prompt_key([{"role": "user", "content": text}], None, "thinking")


def ids_there(dataset: Dataset) -> list[str]:
    shards = read_live(dataset).shards
    return sorted(name for shard in shards for name in read_shard(dataset, shard)["sample_id"].to_pylist())


def test_kill_9_loses_no_counted_reply_and_repeats_none(
    dataset: Dataset, run: Run, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path
):
    texts = [f"What comes after {i}?" for i in range(60)]
    write_prompts(dataset, texts)
    with in_thread(serving(kimi, vocabulary, Scenario(latency_s=(0.02, 0.08)))) as url:
        with child(tmp_path, url) as process:
            wait_for(lambda: count_entries(dataset.journal) >= 12)
            process.kill()
        journaled = {entry.sample_id for path in journal_files(dataset.journal) for entry in read_entries(path)}
        assert 12 <= len(journaled) < 60
        counted = accounting(dataset, kimi, DatasetSettings(max_tokens=256))
        assert (counted.unsealed, counted.answered, counted.rows) == (len(journaled), len(journaled), 0)
        assert not counted.complete
        summary = run(endpoint_at(url))
        requests = requests_of(url)
    assert (summary.answered_before, summary.answered) == (len(journaled), 60 - len(journaled))
    assert summary.rows_sealed == 60
    assert ids_there(dataset) == sorted(f"p{i}" for i in range(60))
    assert {name: requests[key_of(texts[int(name[1:])])] for name in journaled} == dict.fromkeys(journaled, 1)
    assert accounting(dataset, kimi, DatasetSettings(max_tokens=256)).complete


def test_the_first_interrupt_drains_and_seals(
    dataset: Dataset, run: Run, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path
):
    write_prompts(dataset, [f"What comes after {i}?" for i in range(60)])
    with in_thread(serving(kimi, vocabulary, Scenario(latency_s=(0.1, 0.2)))) as url:
        with child(tmp_path, url) as process:
            wait_for(lambda: count_entries(dataset.journal) >= 8)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        summary = json.loads(out)
        # Everything that the server was asked is kept: nothing paid for is thrown away.
        assert sum(requests_of(url).values()) == summary["answered"] == summary["rows_sealed"] < 60
        assert (summary["interrupted"], summary["stopped"]) == (True, "interrupted")
        assert summary["left"] == 60 - summary["answered"]
        assert journal_files(dataset.journal) == []
        assert run(endpoint_at(url)).answered == summary["left"]
    assert ids_there(dataset) == sorted(f"p{i}" for i in range(60))


def test_the_second_interrupt_gives_up_what_is_in_flight_and_leaves_the_journal(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path, scripted: Server
):
    server, url = scripted

    async def slow(_):
        import asyncio

        await asyncio.sleep(30)

    write_prompts(dataset, ["quick", "slow"])
    server.steps["slow"] = [slow]
    with child(tmp_path, url) as process:
        wait_for(lambda: server.seen["slow"] == 1 and count_entries(dataset.journal) == 1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors
    summary = json.loads(out)
    assert (summary["answered"], summary["left"], summary["rows_sealed"]) == (1, 1, 0)
    # It may have been billed: it stays on file, and is asked again.
    assert (summary["lost"], summary["interrupted"]) == (1, True)
    (failure,) = read_failures(dataset.failures)
    assert (failure.reason, failure.sample_id, failure.final) == ("in_flight_when_stopped", "p1", False)
    assert json.loads((dataset.folder / "run.json").read_bytes())["phase"] == "stopped"
    assert seal_journal(dataset, RowBuilder(kimi, vocabulary)) == 1
    assert ids_there(dataset) == ["p0"]


def test_a_full_disk_stops_the_run_and_what_was_counted_is_there(
    dataset: Dataset, run: Run, scripted: Server, tmp_path: Path
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(60)])
    with child(tmp_path, url, largest_file=20_000) as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "StoreError" in errors.splitlines()[-1]
    assert "cannot be written" in errors.splitlines()[-1]
    (path,) = journal_files(dataset.journal)
    kept = {entry.sample_id for entry in read_entries(path)}
    assert path.stat().st_size <= 20_000
    assert 5 < len(kept) < 60
    summary = run(endpoint_at(url))
    assert (summary.answered_before, summary.answered) == (len(kept), 60 - len(kept))
    assert {name: server.seen[f"q{name[1:]}"] for name in kept} == dict.fromkeys(kept, 1)
    assert ids_there(dataset) == sorted(f"p{i}" for i in range(60))


# --- sealing ----------------------------------------------------------------------------------------


@pytest.fixture
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def write_journal(dataset: Dataset, builder: RowBuilder, names: list[str], text: str = "Hello.") -> Path:
    """A journal that holds an answer to each of `names`."""
    prompts = [Prompt(id=name, messages=[{"role": "user", "content": name}]) for name in names]
    judge = Judge(endpoint=endpoint_at("http://127.0.0.1:9"), builder=builder, key=None)
    response = Response(status=200, headers={}, body=json.dumps(completion(text)).encode(), latency_s=0.5)
    request = Request(url="", body=b"", sent={}, form="openai")
    path = dataset.journal / f"generate-{len(journal_files(dataset.journal))}.jsonl"
    with LineWriter(path) as writer:
        for ask in plan_asks(prompts, DatasetSettings(), builder.contract):
            outcome = judge.of_response(ask, request, response, at=1.0)
            assert isinstance(outcome, Answered)
            writer.write(outcome.entry)
    return path


def test_a_journal_that_is_sealed_but_still_there_is_not_sealed_twice(dataset: Dataset, builder: RowBuilder):
    write_journal(dataset, builder, ["a", "b"])
    assert seal_journal(dataset, builder) == 2
    write_journal(dataset, builder, ["a", "b"])
    counted = accounting(dataset, builder.contract, DatasetSettings())
    assert (counted.unsealed, counted.rows, counted.asked) == (0, 2, None)
    assert seal_journal(dataset, builder) == 0
    write_journal(dataset, builder, ["b", "c"])
    assert seal_journal(dataset, builder) == 1
    assert ids_there(dataset) == ["a", "b", "c"]
    assert journal_files(dataset.journal) == []
    assert seal_journal(dataset, builder) == 0


def test_a_torn_last_line_was_never_counted(dataset: Dataset, builder: RowBuilder):
    path = write_journal(dataset, builder, ["a", "b"])
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    assert accounting(dataset, builder.contract, DatasetSettings()).unsealed == 1
    assert seal_journal(dataset, builder) == 1
    assert ids_there(dataset) == ["a"]


def test_a_damaged_line_in_the_middle_stops_sealing_and_loses_nothing(dataset: Dataset, builder: RowBuilder):
    path = write_journal(dataset, builder, ["a", "b"])
    content = path.read_bytes()
    path.write_bytes(b"{" + content)
    with pytest.raises(StoreError, match="line 1"):
        seal_journal(dataset, builder)
    assert path.read_bytes() == b"{" + content
    assert read_live(dataset).shards == ()


def test_a_second_answer_in_the_journal_is_no_row_but_stays_on_file(dataset: Dataset, builder: RowBuilder):
    write_journal(dataset, builder, ["a"])
    write_journal(dataset, builder, ["a"], text="Another.")
    assert seal_journal(dataset, builder) == 1
    (failure,) = read_failures(dataset.failures)
    assert (failure.reason, failure.sample_id) == ("id_conflict", "a")
    assert "Another." in (failure.body or "")


def test_a_journal_of_another_contract_is_refused(dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary):
    path = write_journal(dataset, builder, ["a"])
    other = RowBuilder(read_contract("kimi-k2-instruct"), vocabulary)
    with pytest.raises(ConfigError, match=r"expected entries of contract kimi-k2-instruct, found kimi-k2\.5"):
        seal_journal(dataset, other)
    assert path.exists()
    assert seal_journal(dataset, builder) == 1
    write_journal(dataset, builder, ["b"])
    with pytest.raises(ConfigError, match="two contracts"):
        seal_journal(dataset, other)


def test_two_processes_do_not_write_at_once(dataset: Dataset, run: Run, builder: RowBuilder, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["a"])
    with sole_writer(dataset.lock):
        with pytest.raises(StoreError, match="another process"):
            run(endpoint_at(url))
        with pytest.raises(StoreError, match="another process"):
            seal_journal(dataset, builder)
    assert not server.bodies
