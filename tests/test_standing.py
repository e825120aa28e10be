"""How datasets stand, from files alone: beside a live run, after kill -9, and where files are torn or hostile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from toolkit.contract import Contract
from toolkit.generate.processes import host_name, is_running, mark_of
from toolkit.generate.status import RunStatus, cost_of_runs, read_status, write_status
from toolkit.generate.summary import RunSummary
from toolkit.report.standing import change_line, render_standing, render_standings
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
from toolkit.standing import Gate, Life, life_of, next_commands, standing_of
from toolkit.store.listing import seal_rows
from toolkit.store.verdicts import read_verdict, write_verdict
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .generate.conftest import dataset, endpoint_at, run, workspace, write_prompts
from .generate.server import in_thread
from .generate.test_crash import child
from .rows import add_dataset, audit, row

__all__ = ["dataset", "run", "workspace"]

STATUS = RunStatus(
    dataset="B3", phase="asking", pid=os.getpid(), started=0.0, updated=100.0, asked=10, answered=4, failed=1, left=5,
    tokens=1000, run_tokens=300, tokens_budget=5000, cost_usd=0.5, dollars_budget=2.0, per_s=2.0, eta_s=2.5,
    in_flight=3, limit=8,
    providers={"Chutes": 4}, failures={"http_400": 1}, host=host_name(), mark=mark_of(os.getpid()) or "",
)  # fmt: skip


def status(**changes: object) -> RunStatus:
    return msgspec.structs.replace(STATUS, **changes)


def wait_for(happened: Callable[[], object], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_was_paid_before_a_run_was_killed_is_told_and_so_is_how_to_go_on(workspace: Workspace):
    dataset = workspace.dataset_named("B3")
    dataset.folder.mkdir(parents=True)
    options = ("--tokens", "5000", "--url", "http://127.0.0.1:8000/a b")
    write_status(dataset.folder, status(pid=-1, cost_usd=0.5, cost_before_usd=1.25, options=options))
    assert cost_of_runs(dataset.folder) == 1.75
    standing = standing_of(dataset, 101.0)
    told = "\n".join(render_standing(standing))
    assert "$0.50 of $2.00, this run; $1.25 before it" in told
    assert list(next_commands(standing)) == ["tokenproof generate B3 --tokens 5000 --url 'http://127.0.0.1:8000/a b'"]
    assert "  $1.75  " in render_standings([standing])[1]
    (dataset.folder / "run.json").write_bytes(b"{")
    assert cost_of_runs(dataset.folder) == 0.0


def test_a_run_goes_on_counting_what_was_paid_before_it(
    dataset: Dataset, run: Callable[..., RunSummary], kimi: Contract, vocabulary: Vocabulary
):
    write_prompts(dataset, ["one", "two"])
    with in_thread(serving(kimi, vocabulary, Scenario(latency_s=(0.0, 0.01)))) as url:
        first = run(endpoint_at(url))
        write_prompts(dataset, ["one", "two", "three"])
        second = run(endpoint_at(url))
    found = read_status(dataset.folder)
    assert found is not None
    assert first.cost_usd > 0
    assert (found.cost_before_usd, found.cost_usd) == (pytest.approx(first.cost_usd), pytest.approx(second.cost_usd))


# --- whether a run is alive ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run_status", "life"),
    [
        (None, Life.NONE),
        (status(), Life.RUNNING),
        (status(phase="done"), Life.ENDED),
        (status(phase="stopped", pid=1), Life.ENDED),
        (status(mark="boot/1"), Life.DIED),
        (status(mark=""), Life.UNKNOWN),
        (status(host="elsewhere"), Life.UNKNOWN),
        (status(pid=-1), Life.DIED),
        (status(pid=2**40), Life.DIED),
        (status(pid=2**31 - 1), Life.DIED),
    ],
)
def test_what_became_of_a_run(run_status: RunStatus | None, life: Life):
    assert life_of(run_status, host_name()) is life


def test_a_pid_that_was_given_away_is_another_process():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    mark = mark_of(process.pid)
    assert mark is not None
    assert is_running(process.pid, mark) is True
    assert is_running(os.getpid(), mark) is False
    process.kill()
    # Dead, though nobody has asked for its exit code yet.
    wait_for(lambda: is_running(process.pid, mark) is False)
    process.wait()
    assert is_running(process.pid, mark) is False


# --- beside a run ---------------------------------------------------------------------------------------


def test_beside_a_live_run_and_after_it_was_killed(
    dataset: Dataset,
    run: Callable[..., RunSummary],
    kimi: Contract,
    vocabulary: Vocabulary,
    tmp_path: Path,
):
    write_prompts(dataset, [f"What comes after {i}?" for i in range(60)])
    with in_thread(serving(kimi, vocabulary, Scenario(latency_s=(0.1, 0.2)))) as url:
        with child(tmp_path, url) as process:
            wait_for(lambda: (found := standing_of(dataset, time.time()).run) and found.answered >= 4)
            alive = standing_of(dataset, time.time())
            process.kill()
            process.wait()
        before = files_of(dataset.folder)
        dead = standing_of(dataset, time.time())
        assert files_of(dataset.folder) == before
        assert (alive.life, alive.prompts, alive.faults) == (Life.RUNNING, 60, ())
        assert (alive.unsealed, list(next_commands(alive))) == (None, [])
        assert (alive.answered or 0) + (alive.left or 0) == 60
        assert (dead.life, dead.rows, dead.faults) == (Life.DIED, 0, ())
        # The journal knows of more than the last word of the run.
        assert dead.answered == dead.unsealed
        assert (dead.unsealed or 0) >= (alive.answered or 0)
        assert (dead.answered or 0) + (dead.left or 0) == 60
        assert list(next_commands(dead)) == ["tokenproof generate B3"]
        assert "died while asking" in render_standing(dead)[0]
        assert any(line.startswith("  as of ") and "last word" in line for line in render_standing(dead))
        run(endpoint_at(url))
    done = standing_of(dataset, time.time())
    assert (done.life, done.rows, done.unsealed, done.answered, done.left) == (Life.ENDED, 60, 0, 60, 0)
    assert (done.gate, list(next_commands(done))) == (Gate.NONE, ["audit B3"])
    # Rows that were taken out since are to be asked for again.
    less = replace(done, rows=50)
    assert (less.answered, less.left, list(next_commands(less))) == (50, 10, ["tokenproof generate B3"])
    assert any("50 of 60 (83.3 %), 10 left, 10 taken out since" in line for line in render_standing(less))


def test_a_run_that_does_not_answer_for_itself(dataset: Dataset):
    dataset.folder.mkdir(parents=True)
    write_status(dataset.folder, status())
    quiet, lively = standing_of(dataset, 200.0), standing_of(dataset, 101.0)
    assert (quiet.is_silent, lively.is_silent) == (True, False)
    assert "it does not answer for itself" in render_standing(quiet)[0]


def test_a_run_that_was_stopped_says_why_and_what_to_do(dataset: Dataset):
    dataset.folder.mkdir(parents=True)
    write_status(dataset.folder, status(phase="stopped", stopped="the budget of 5,000 tokens is spent"))
    found = standing_of(dataset, 101.0)
    text = "\n".join(render_standing(found))
    assert "stopped     the budget of 5,000 tokens is spent" in text
    assert "tokens      1,000 of 5,000 on disk, 300 of them from this run" in text
    assert "cost        $0.50 of $2.00, this run" in text
    assert "providers   4 Chutes; this run" in text
    assert "next        tokenproof generate B3" in text


def test_the_cost_of_several_datasets_and_what_is_held_against_a_budget_are_told_apart(dataset: Dataset):
    dataset.folder.mkdir(parents=True)

    def cost(**changes: object) -> str:
        write_status(dataset.folder, status(phase="done", **changes))
        (line,) = [line for line in render_standing(standing_of(dataset, 0.0)) if line.startswith("  cost")]
        return line.split(maxsplit=1)[1]

    assert cost(run_cost_usd=0.5, dollars_budget=None, dollars_held=0.9) == "$0.50, this run"
    assert cost(run_cost_usd=0.7, run_datasets=2, dollars_budget=None) == "$0.50 ($0.70 with all 2 datasets), this run"
    held = cost(run_cost_usd=0.5, dollars_held=0.9)
    assert held == "$0.50 of $2.00 ($0.90 held against it: what nobody priced counts as its most), this run"


def test_a_progress_line_ends_in_whole_words():
    why = "the budget of 5,000 tokens is spent: 4,900 are kept, and one more answer may have 8,192"
    told = status(phase="draining", stopped=why).line()
    assert told.endswith("draining: the budget of 5,000 tokens is spent: 4,900 are kept, and …")


# --- before any run, and audited ---------------------------------------------------------------------------


def test_a_dataset_that_was_never_generated(dataset: Dataset):
    write_prompts(dataset, ["a", "b"])
    dataset.prompts.write_bytes(dataset.prompts.read_bytes() + b"\n  \n" + b'{"messages": []}')
    found = standing_of(dataset, 0.0)
    assert (found.prompts, found.life, found.rows, found.gate) == (3, Life.NONE, 0, Gate.NONE)
    assert list(next_commands(found)) == ["tokenproof preflight B3", "tokenproof generate B3"]


def test_prompts_that_are_open_are_generated_before_anything_is_audited(dataset: Dataset):
    write_prompts(dataset, [str(i) for i in range(12)])
    found = replace(standing_of(dataset, 0.0), rows=3)
    assert list(next_commands(found)) == ["tokenproof generate B3"]
    assert list(next_commands(replace(found, rows=12))) == ["audit B3"]
    write_status(dataset.folder, status(phase="done"))
    assert list(next_commands(standing_of(dataset, 0.0))) == ["tokenproof generate B3"]


@pytest.mark.parametrize(
    ("verdict", "gate"),
    [
        ({"shards": [], "complete": True, "passed": True}, Gate.PASSED),
        ({"shards": [], "complete": False, "passed": True}, Gate.INCOMPLETE),
        ({"shards": [], "complete": True, "passed": False}, Gate.CLOSED),
        ({"shards": [{"path": "p", "sha256": "0", "rows": 1}], "complete": True, "passed": True}, Gate.OUTDATED),
        ({"shards": []}, Gate.UNREADABLE),
    ],
)
def test_what_the_audit_said(dataset: Dataset, verdict: dict, gate: Gate):
    dataset.folder.mkdir(parents=True)
    write_status(dataset.folder, status(phase="done"))
    dataset.reports.mkdir(parents=True)
    dataset.verdict.write_text(json.dumps(verdict), encoding="utf-8")
    found = standing_of(dataset, 0.0)
    assert found.gate is gate
    assert bool(found.faults) is (gate is Gate.UNREADABLE)


# --- torn and hostile files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"dataset": "B3", "pha',
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"dataset": "B3"}',
        msgspec.json.encode(STATUS).replace(b'"pid":', b'"pid":1e400,"x":'),
        b" " * (2 << 20),
    ],
    ids=["empty", "torn", "list", "bytes", "deep", "part", "number", "large"],
)
def test_a_status_that_cannot_be_read_is_said_and_the_rest_is_told(dataset: Dataset, content: bytes):
    write_prompts(dataset, ["a", "b"])
    (dataset.folder / "run.json").write_bytes(content)
    found = standing_of(dataset, 0.0)
    assert (found.run, found.life, found.prompts) == (None, Life.UNKNOWN, 2)
    (fault,) = found.faults
    assert "run.json" in fault
    assert any("problem" in line for line in render_standing(found))


def test_files_that_are_none(dataset: Dataset):
    dataset.folder.mkdir(parents=True)
    os.mkfifo(dataset.folder / "run.json")
    dataset.prompts.symlink_to("prompts.jsonl")
    dataset.live.write_text("{", encoding="utf-8")
    dataset.journal.write_text("", encoding="utf-8")
    dataset.failures.mkdir()
    (dataset.failures / "a.jsonl").write_bytes(b'{"reason": "http_400"}\n{"reason": 1}\n')
    found = standing_of(dataset, 0.0)
    assert found.rows is None
    assert found.failures == {"http_400": 1}
    assert len(found.faults) == 5
    assert json.loads(msgspec.json.encode(found.as_json()))["faults"]


def test_a_hostile_status_reaches_no_terminal(dataset: Dataset):
    evil = "\x1b[2J\u202e[red]" + "x" * 10_000
    hostile = status(
        dataset=evil, phase=evil, stopped=evil, providers={evil: 1}, failures={evil: 2**62}, resting=(evil,), host=evil,
        updated=-1e308, eta_s=1e308, per_s=-1.0, answered=-5, asked=0, left=-7, in_flight=2**60,
    )  # fmt: skip
    dataset.folder.mkdir(parents=True)
    for changes in ({}, {"host": host_name()}, {"phase": "stopped"}):
        write_status(dataset.folder, msgspec.structs.replace(hostile, **changes))
        found = standing_of(dataset, 0.0)
        lines = [*render_standing(found), *render_standings([found]), change_line(found)]
        assert all(line.isprintable() and len(line) < 2_000 for line in lines)
        assert found.dataset == "B3"


# --- the command -----------------------------------------------------------------------------------------------


def status_command(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolkit", "status", "--root", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_tells_all_datasets_or_one(dataset: Dataset, workspace: Workspace):
    write_prompts(dataset, ["a"])
    seal_rows(dataset, [row(name) for name in "abcd"], contract="kimi-k2.5")
    write_status(dataset.folder, status(phase="done"))
    (workspace.datasets / "B4").mkdir()
    table = status_command(workspace.root)
    assert (table.returncode, table.stderr) == (0, "")
    assert [line.split()[:3] for line in table.stdout.splitlines()] == [
        ["dataset", "state", "answered"], ["B3", "done", "4"], ["B4", "–", "0"],
    ]  # fmt: skip
    both = json.loads(status_command(workspace.root, "--format", "json").stdout)
    assert [one["dataset"] for one in both["datasets"]] == ["B3", "B4"]
    one = json.loads(status_command(workspace.root, "B3", "--format", "json").stdout)
    assert (one["run"]["providers"], one["gate"]) == ({"Chutes": 4}, "none")
    (dataset.folder / "run.json").write_bytes(b"{")
    torn = status_command(workspace.root, "B3")
    assert (torn.returncode, "problem" in torn.stdout) == (3, True)


def test_faulty_settings_are_said(dataset: Dataset, workspace: Workspace):
    write_prompts(dataset, ["a"])
    (workspace.root / "tokenproof.toml").write_text("[datasets.B3]\nmax_token = 5\n", encoding="utf-8")
    told = status_command(workspace.root, "B3")
    assert told.returncode == 2
    assert "datasets.B3.max_token: unknown key; did you mean max_tokens?" in told.stderr


def test_watching_ends_with_the_run_and_tells_each_change_once(dataset: Dataset, workspace: Workspace):
    dataset.folder.mkdir(parents=True)
    seal_rows(dataset, [row(name) for name in "abcdefghi"], contract="kimi-k2.5")
    write_status(dataset.folder, status())
    command = [sys.executable, "-m", "toolkit", "status", "B3", "--watch", "--root", str(workspace.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        write_status(dataset.folder, status(phase="done", answered=9, left=0))
        rest = watching.stdout.read()
        assert watching.wait(20) == 0
    assert first.startswith("B3: asking, 4 of 10 (40.0 %), 1 failed, 5 left · 3/8 in flight")
    assert rest == "B3: done, 9 of 10 (90.0 %), 1 failed\n"


def test_ctrl_c_ends_watching_in_peace(dataset: Dataset, workspace: Workspace):
    import signal

    dataset.folder.mkdir(parents=True)
    write_status(dataset.folder, status())
    command = [sys.executable, "-m", "toolkit", "status", "--watch", "--format", "json", "--root", str(workspace.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["life"] == "running"
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=20)
    assert (watching.returncode, errors) == (0, "")


def test_lines_are_replaced_on_a_terminal():
    import io

    from toolkit.report.live import replaced_lines

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with replaced_lines(stream) as show:
        show(["[bold]one[/bold]"])
        show(["two"])
    assert "[bold]one[/bold]" in stream.getvalue()
    assert "two" in stream.getvalue()


# --- what lies there after an audit --------------------------------------------------------------------


@pytest.fixture
def passed(tmp_path: Path, kimi: Contract) -> Dataset:
    """A dataset with a passed audit of one shard."""
    there = Workspace(tmp_path)
    added = add_dataset(there, "B3", [row("a"), row("b")])
    audit(there, added, kimi, quarantine={})
    assert standing_of(added, 1.0).gate is Gate.PASSED
    return added


def gate_of(dataset: Dataset) -> tuple[Gate, tuple[str, ...], list[str]]:
    found = standing_of(dataset, 1.0)
    shown = "\n".join(render_standing(found))
    assert all(reason in shown for reason in found.gate_reasons)
    return found.gate, found.gate_reasons, list(next_commands(found))


def test_a_shard_that_broke_after_the_pass_is_noticed(passed: Dataset):
    (shard,) = passed.shards.glob("*.parquet")
    content = shard.read_bytes()
    shard.write_bytes(content[:-20])
    gate, (reason,), commands = gate_of(passed)
    assert (gate, commands) == (Gate.DAMAGED, [])
    assert "damaged or cut short; put it back from a copy" in reason
    shard.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    os.utime(shard, (2e9, 2e9))
    assert gate_of(passed)[1][0].endswith("not the bytes that were sealed; put it back from a copy")
    shard.unlink()
    assert gate_of(passed)[:2] == (Gate.DAMAGED, (f"shards/{shard.name}: missing; put it back from a copy",))
    shard.write_bytes(content)
    os.utime(shard, (2e9 + 1, 2e9 + 1))
    assert gate_of(passed)[::2] == (Gate.PASSED, ["tokenproof merge B3 -o train/B3"])


def test_prompts_or_a_suite_changed_after_the_pass_are_noticed(passed: Dataset):
    (suite,) = (passed.reports.parents[1] / "expectations").glob("*.json")
    suite.write_bytes(suite.read_bytes() + b"\n")
    passed.prompts.write_text('{"id": "a", "messages": [{"role": "user", "content": "?"}]}\n')
    gate, reasons, _ = gate_of(passed)
    assert gate is Gate.OUTDATED
    assert reasons == (
        "prompts.jsonl changed since the audit", f"suite {suite.name} changed since the audit",
    )  # fmt: skip


def test_a_closed_gate_says_why(passed: Dataset):
    verdict = read_verdict(passed.verdict)
    write_verdict(passed.verdict, replace(verdict, passed=False, reasons=("terminal_last: 3 rows fail",)))
    assert gate_of(passed) == (Gate.CLOSED, ("terminal_last: 3 rows fail",), ["tokenproof report B3"])


def test_a_file_that_strays_among_the_shards_is_noticed(passed: Dataset):
    (shard,) = passed.shards.glob("*.parquet")
    shard.with_name("part-00099.parquet").write_bytes(shard.read_bytes())
    gate, (reason,), _ = gate_of(passed)
    assert gate is Gate.INCOMPLETE
    assert reason.startswith("shards/part-00099.parquet lies among the shards")
