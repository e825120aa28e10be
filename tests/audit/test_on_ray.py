"""Shards measured on a Ray cluster: the same verdict as in one process, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT
from toolkit.audit import on_ray
from toolkit.audit.on_ray import RayExecutor, ray_executor
from toolkit.audit.shard_facts import ShardStatus, ShardTask
from toolkit.errors import ConfigError, StoreError, UnreachableError
from toolkit.phrases import SHIPPED
from toolkit.rows import RowBuilder
from toolkit.store.listing import seal_rows
from toolkit.store.shards import read_live
from toolkit.vocabulary import Vocabulary

from .workspace import Bench, answers, make_bench

SHARDS = 4
ROWS = 40
IN_A_NAMESPACE = [
    "unshare",
    "-n",
    "-p",
    "-f",
    "--mount-proc",
    "--kill-child",
    "sh",
    "-c",
    'ip link set lo up && exec "$@"',
    "sh",
]


def in_shards(root: Path, vocabulary: Vocabulary) -> Bench:
    """Rows of two providers in four shards; a few of them bear a wrong id."""
    bench = make_bench(root, vocabulary, rows=0, bad=())
    rows = answers(RowBuilder(vocabulary.contract, vocabulary), ROWS, bad=range(0, ROWS, 15))
    for number, row in enumerate(rows):
        row["provider"] = ("Chutes", "Inceptron")[number % 2]
        row["completion_tokens"] = len(row["output_ids"]) - number % 2
    for first in range(0, ROWS, ROWS // SHARDS):
        seal_rows(bench.dataset, rows[first : first + ROWS // SHARDS], contract=bench.contract.name)
    return bench


def damage(shards: Path) -> None:
    """Cut one shard, flip a bit of another, take a third away."""
    cut, flipped, gone = (shards / f"part-0000{number}.parquet" for number in (0, 2, 3))
    cut.write_bytes(cut.read_bytes()[:-200])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    gone.unlink()


def no_namespaces() -> str | None:
    """Why Ray cannot be shut off from the net here; None where it can."""
    missing = [name for name in ("unshare", "ip") if shutil.which(name) is None]
    if missing:
        return f"expected the programs unshare and ip, found no {missing[0]}"
    tried = subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces of one's own here: {tried.stderr.strip()}" if tried.returncode else None


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> dict[str, Any]:
    """What `ray_scenario` found."""
    scene = tmp_path_factory.mktemp("ray")
    in_shards(scene / "whole", vocabulary)
    shutil.copytree(scene / "whole", scene / "damaged")
    damage(scene / "damaged/datasets/B3/shards")
    if why := no_namespaces():
        assert os.environ.get("CI") != "true", why
        pytest.skip(why)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_"))}
    environment = kept | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    words = [*IN_A_NAMESPACE, sys.executable, "-m", "tests.audit.ray_scenario", str(scene)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    made: dict[str, Any] = json.loads((scene / "found.json").read_bytes())
    return made


@pytest.mark.slow
class TestOnTwoNodes:
    def test_a_worker_that_dies_changes_nothing(self, found: dict[str, Any]) -> None:
        alone, ray = found["alone"], found["killed"]
        assert len(found["killed_pids"]) == 1
        assert "its worker was lost (WorkerCrashedError" in ray["err"]
        assert ray["err"].count("tried again") == 1
        assert (alone["code"], ray["code"]) == (0, 0), alone["out"] + ray["err"]
        assert alone["verdict"]["measured_shards"] == SHARDS
        assert alone["verdict"]["quarantined"] > 0
        assert (ray["verdict"], ray["quarantine"]) == (alone["verdict"], alone["quarantine"])

    def test_every_damaged_shard_is_named(self, found: dict[str, Any]) -> None:
        ray = found["damaged"]
        assert ray["code"] == 3
        cut, flipped, gone = ray["verdict"]["unreadable"]
        assert cut.startswith("B3/shards/part-00000.parquet: expected sha256")
        assert "cut short" in cut
        assert flipped.startswith("B3/shards/part-00002.parquet: expected sha256")
        assert gone.startswith("B3/shards/part-00003.parquet: missing")
        assert (ray["verdict"]["passed"], ray["verdict"]["complete"]) == (False, False)
        assert ray["verdict"]["rows"] == ROWS // SHARDS
        assert (ray["verdict"], found["alone_damaged"]["code"]) == (found["alone_damaged"]["verdict"], 3)

    def test_shards_in_object_storage_are_measured_where_tasks_run(self, found: dict[str, Any]) -> None:
        stored = found["stored"]
        assert stored["code"] == 0, stored["err"]
        assert "tried again" not in stored["err"]
        assert (stored["verdict"], stored["quarantine"]) == (found["alone"]["verdict"], found["alone"]["quarantine"])
        facts = [name for name in stored["names"] if name.startswith("datasets/B3/facts/")]
        assert sorted(Path(name).suffix for name in facts) == [".json"] * SHARDS + [".parquet"] * SHARDS
        assert "reports/B3/index.html" in stored["names"]
        assert "s3://proofs/team/w/reports/B3/index.html" in stored["out"]

    def test_a_process_that_is_connected_is_not_sent_to_another_cluster(self, found: dict[str, Any]) -> None:
        elsewhere = found["elsewhere"]
        assert elsewhere["code"] == 2
        assert "to which this process is connected already" in elsewhere["err"]

    def test_a_cut_object_is_named_and_kept_facts_are_taken_by_a_cluster_started_here(
        self, found: dict[str, Any]
    ) -> None:
        cut = found["cut"]
        assert cut["code"] == 3
        assert "ray is started on this machine" in cut["err"]
        (unreadable,) = cut["verdict"]["unreadable"]
        assert unreadable.startswith("B3/shards/part-00001.parquet: expected sha256")
        assert cut["verdict"]["measured_shards"] == 0
        assert cut["verdict"]["rows"] == ROWS - ROWS // SHARDS


# --- without a cluster ----------------------------------------------------------------------------


class Errors:
    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        cause: BaseException | None = None

    class WorkerCrashedError(RayError):
        pass


class Played:
    """Ray's few calls that the executor makes, in this process; `outcomes` says what becomes of each task."""

    exceptions = Errors

    def __init__(self, outcome: Callable[[ShardTask, int], object]):
        self.outcome = outcome
        self.tries: dict[str, int] = {}
        self.under_way: set[int] = set()
        self.most = 0
        self.cancelled: list[object] = []
        self.options: dict[str, object] = {}
        self._given: list[ShardTask] = []

    def remote(self, **options: object) -> Any:
        self.options = options
        played = self

        class Function:
            def __init__(self, function: object):
                pass

            def remote(self, task: ShardTask) -> int:
                played._given.append(task)
                played.under_way.add(len(played._given) - 1)
                played.most = max(played.most, len(played.under_way))
                return len(played._given) - 1

        return Function

    def wait(self, references: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        assert num_returns == 1
        return references[-1:], references[:-1]

    def get(self, reference: int) -> object:
        self.under_way.remove(reference)
        task = self._given[reference]
        self.tries[task.shard.path] = self.tries.get(task.shard.path, 0) + 1
        found = self.outcome(task, self.tries[task.shard.path])
        if isinstance(found, Errors.RayError):
            raise found
        return found

    def cancel(self, reference: int, force: bool) -> None:
        assert force
        self.cancelled.append(reference)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> list[ShardTask]:
    bench = in_shards(tmp_path_factory.mktemp("played"), vocabulary)
    return [
        ShardTask(dataset=bench.dataset, shard=shard, contract=bench.contract, phrases=SHIPPED, believed=None, seed="",
                  sampled_rows=64)
        for shard in read_live(bench.dataset).shards
    ]  # fmt: skip


def done(task: ShardTask) -> ShardStatus:
    return ShardStatus(shard=task.shard, fault="seen")


def test_few_tasks_are_under_way_and_every_shard_has_a_status(tasks: list[ShardTask]) -> None:
    for workers, most in ((None, 2), (3, 3)):
        ray = Played(lambda task, _: done(task))
        statuses = list(RayExecutor(ray, workers, print).run(tasks))
        assert {status.shard.path for status in statuses} == {task.shard.path for task in tasks}
        assert (len(statuses), ray.most) == (SHARDS, most)
        assert ray.options["max_retries"] == 0


@pytest.mark.parametrize("lost", [Errors.WorkerCrashedError("it died\nof hunger"), UnreachableError("no answer")])
def test_what_is_lost_is_tried_again_and_then_a_fault(tasks: list[ShardTask], lost: Exception) -> None:
    told: list[str] = []
    once, always = tasks[0].shard.path, tasks[1].shard.path

    def outcome(task: ShardTask, attempt: int) -> object:
        return lost if task.shard.path == always or (task.shard.path == once and attempt == 1) else done(task)

    statuses = {s.shard.path: s.fault or "" for s in RayExecutor(Played(outcome), None, told.append).run(tasks)}
    assert len(statuses) == SHARDS
    assert statuses[once] == "seen"
    assert statuses[always].startswith(f"B3/{always}: ")
    assert statuses[always].endswith(", 3 times")
    assert len(told) == 3
    assert all(str(lost).splitlines()[0] in sentence for sentence in (*told, statuses[always]))


def test_what_nobody_thought_of_there_is_a_fault_of_its_shard(tasks: list[ShardTask]) -> None:
    error = Errors.RayTaskError("a page of traceback")
    error.cause = ModuleNotFoundError("no module named toolkit")
    statuses = list(RayExecutor(Played(lambda *_: error), None, print).run(tasks[:1]))
    assert [status.fault for status in statuses] == [
        f"{tasks[0].where}: cannot be measured there: ModuleNotFoundError: no module named toolkit"
    ]


@pytest.mark.parametrize("error", [ConfigError("no such vocabulary"), StoreError("no room")])
def test_what_concerns_all_shards_ends_the_audit(tasks: list[ShardTask], error: Exception) -> None:
    ray = Played(lambda *_: error)
    with pytest.raises(type(error), match=str(error)):
        list(RayExecutor(ray, 4, print).run(tasks))
    assert len(ray.cancelled) == 3


def test_facts_that_are_not_here_are_no_facts(tasks: list[ShardTask]) -> None:
    def elsewhere(task: ShardTask, _: int) -> object:
        status = on_ray.measure_shard(task)
        assert isinstance(status, ShardStatus)
        assert status.facts is not None
        if task is tasks[0]:
            status.facts.path.unlink()
        return status

    first, second = RayExecutor(Played(elsewhere), 1, print).run(tasks[:2])
    assert (first.facts, second.fault) == (None, None)
    assert (first.fault or "").startswith("B3/shards/part-00000.parquet: its facts: ")


def test_where_nothing_answers_nothing_is_waited_for() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(UnreachableError, match="expected a cluster"), ray_executor(address, None, print):
            raise AssertionError


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "127.0.0.1", "", "http://x:1", "a:1\nb"])
def test_what_is_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://of.another:10001")
    with pytest.raises(ConfigError, match="expected HOST:PORT"), ray_executor(address, None, print):
        raise AssertionError


class Connected:
    """Ray in a process that is connected already; it has no other calls than these."""

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:6380")

    def remote(self, **options: object) -> Any:
        return lambda function: SimpleNamespace(remote=function)


@pytest.mark.parametrize("address", [None, "auto", "127.0.0.1:6380"])
def test_a_connection_that_there_is_is_used_and_left(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", Connected())
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with ray_executor(address, None, print) as executor:
        assert isinstance(executor, RayExecutor)
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("address", ["127.0.0.1:6381", "elsewhere:6380", "local"])
def test_a_connection_to_another_cluster_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", Connected())
    says = f"--ray-address '{address}': expected 127.0.0.1:6380, to which this process is connected already"
    with pytest.raises(ConfigError, match=re.escape(says)), ray_executor(address, None, print):
        raise AssertionError


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="tokenproof\\[ray\\]"), ray_executor("auto", None, print):
        raise AssertionError
