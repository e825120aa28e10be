"""Whole runs over loopback: what is asked, kept, given up, and found again."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from toolkit.accounting import accounting
from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.errors import ConfigError, PromptsError, StoreError
from toolkit.generate.preparing import Prepared
from toolkit.generate.run import Surroundings, generate
from toolkit.generate.status import read_status
from toolkit.generate.summary import RunSummary
from toolkit.records import Accounting
from toolkit.rows import RowBuilder
from toolkit.sealing import seal_journal
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
from toolkit.store import shard_writer
from toolkit.store.discards import read_discards
from toolkit.store.journal import journal_files, read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .conftest import KEY, endpoint_at, write_prompts
from .server import Scripted, completion, error_reply, in_thread, json_reply

Run = Callable[..., RunSummary]
Server = tuple[Scripted, str]


def rows_of(dataset: Dataset) -> list[dict]:
    return [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()]


def count(dataset: Dataset, kimi: Contract, **settings) -> Accounting:
    return accounting(dataset, kimi, DatasetSettings(max_tokens=256, **settings))


def ledger(url: str) -> dict:
    with urllib.request.urlopen(f"{url}/simulator/ledger") as reply:
        return json.load(reply)


# --- against the simulated OpenRouter -------------------------------------------------------------


def test_every_prompt_becomes_one_row_and_a_second_run_sends_nothing(
    dataset: Dataset, run: Run, kimi: Contract, vocabulary: Vocabulary
):
    # Room enough: an answer that is cut inside a character cannot be rebuilt from its text.
    write_prompts(dataset, [f"What is {i} + {i}?" for i in range(40)], max_tokens=8192)
    before = count(dataset, kimi)
    assert (before.asked, before.answered, before.unanswered, before.rows) == (40, 0, 40, 0)
    with in_thread(serving(kimi, vocabulary, Scenario())) as url:
        summary = run(endpoint_at(url))
        billed = ledger(url)
        again = run(endpoint_at(url))
        assert ledger(url) == billed
    rows = rows_of(dataset)
    assert sorted(row["sample_id"] for row in rows) == sorted(f"p{i}" for i in range(40))
    # The ids are those that the server's model produced: rebuilt from text here, and told by its ledger there.
    ids = sorted(entry["output_ids"] for entry in billed["billed"])
    assert sorted(row["output_ids"] for row in rows) == ids
    assert {row["origin"] for row in rows} == {"generate"}
    assert (summary.asked, summary.answered, summary.left, summary.rows_sealed, summary.requests) == (40, 40, 0, 40, 40)
    assert summary.tokens == sum(row["completion_tokens"] for row in rows)
    assert summary.cost_usd == pytest.approx(billed["cost_usd"])
    assert sum(summary.providers.values()) == 40
    assert summary.exit_code == 0
    assert (again.asked, again.answered_before, again.requests, again.rows_sealed) == (40, 40, 0, 0)
    assert journal_files(dataset.journal) == []
    assert journal_files(dataset.failures) == []
    after = count(dataset, kimi)
    assert (after.answered, after.unanswered, after.failed, after.unsealed, after.rows) == (40, 0, 0, 0, 40)
    assert after.complete


def test_the_shards_are_those_that_the_journal_would_have_given(
    dataset: Dataset, run: Run, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Rows are made while the run goes on; had it been killed right before its end, these would be the same bytes."""
    killed = Workspace(tmp_path / "killed").dataset_named(dataset.name)
    real = Prepared.seal

    def seal(prepared: Prepared) -> int:
        shutil.copytree(dataset.folder, killed.folder)
        return real(prepared)

    monkeypatch.setattr(Prepared, "seal", seal)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 32)
    write_prompts(dataset, [f"What is {i} + {i}?" for i in range(150)])
    with in_thread(serving(kimi, vocabulary, Scenario(latency_s=(0.0, 0.02)))) as url:
        run(endpoint_at(url))
    (half,) = killed.shards.iterdir()
    assert half.name.startswith(".part-new.parquet.")
    assert seal_journal(killed, RowBuilder(kimi, vocabulary)) == 150
    assert [path.name for path in killed.shards.iterdir()] == ["part-00000.parquet"]
    for path in ("shards/part-00000.parquet", "shards.json"):
        assert (dataset.folder / path).read_bytes() == (killed.folder / path).read_bytes()


def test_the_status_tells_what_the_server_billed_of_this_run_and_what_is_on_disk(
    dataset: Dataset, run: Run, kimi: Contract, vocabulary: Vocabulary
):
    write_prompts(dataset, [f"What is {i} + {i}?" for i in range(12)])
    faults = {"http_502": 0.2, "empty_choices": 0.2}
    with in_thread(serving(kimi, vocabulary, Scenario(faults=faults, seed=5))) as url:
        run(endpoint_at(url, max_tries=1))
        before = ledger(url)["cost_usd"]
        first = read_status(dataset.folder)
        summary = run(endpoint_at(url, max_tries=12))
        second = read_status(dataset.folder)
        billed = ledger(url)["cost_usd"]
    assert first is not None
    assert second is not None
    assert (first.answered < 12, second.answered) == (True, 12)
    assert first.cost_usd == pytest.approx(before)
    assert second.cost_usd == second.run_cost_usd == pytest.approx(billed - before)
    assert (second.run_datasets, second.run_tokens) == (1, summary.tokens)
    assert second.tokens == sum(row["completion_tokens"] for row in rows_of(dataset))


@pytest.mark.parametrize("stream", [False, True])
def test_faults_that_pass_are_asked_again_until_all_is_answered(
    dataset: Dataset, run: Run, kimi: Contract, vocabulary: Vocabulary, stream: bool
):
    write_prompts(dataset, [f"Tell me about the number {i}." for i in range(30)])
    names = ("http_429", "http_502", "error_in_200", "http_524", "empty_choices", "cut_stream")
    faults = dict.fromkeys(names, 0.07) | {"blank_lines": 0.5}
    waits: list[float] = []
    with in_thread(serving(kimi, vocabulary, Scenario(faults=faults, seed=3))) as url:
        summary = run(endpoint_at(url, stream=stream, max_tries=12), waits=waits)
        requests = sum(ledger(url)["requests"].values())
    assert summary.answered == 30
    assert summary.requests == requests > 30
    # Each further try was waited for; the limiter's pace may add waits of its own.
    assert len(waits) >= requests - 30
    assert [row["streamed"] for row in rows_of(dataset)] == [stream] * 30


def test_answers_of_samples_are_distinct_rows(dataset: Dataset, run: Run, scripted: Server):
    _, url = scripted
    write_prompts(dataset, ["a", "b"])
    assert run(endpoint_at(url), samples=3).answered == 6
    assert run(endpoint_at(url), samples=4).answered == 2
    rows = rows_of(dataset)
    assert {(row["sample_id"], row["sample_index"]) for row in rows} == {(p, i) for p in ("p0", "p1") for i in range(4)}
    assert len({row["row_key"] for row in rows}) == 8


# --- what is kept of an answer ----------------------------------------------------------------------


def test_a_row_keeps_what_was_asked_and_what_came(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    run(endpoint_at(url), sampling={"temperature": 0.6})
    (row,) = rows_of(dataset)
    payload = json.loads(row["payload"])
    assert payload["request"] == server.bodies[0]
    assert json.loads(payload["body"]) == completion()
    assert payload["sampling"] == {"temperature": 0.6}
    assert (row["provider"], row["source"], row["cost_usd"], row["prompt_tokens"]) == ("Chutes", "openrouter", 0.001, 9)
    assert (row["content"], row["reasoning"], row["rebuild_status"]) == ("Hello.", "Greet.", "complete")
    assert json.loads(row["messages"]) == [{"role": "user", "content": "hi"}]
    assert 0 < row["latency_s"] < 10


def test_the_key_goes_to_the_server_and_into_no_file(dataset: Dataset, run: Run, scripted: Server, tmp_path: Path):
    server, url = scripted
    write_prompts(dataset, ["good", "bad", "echo"])
    server.steps["bad"] = [lambda r: error_reply(400, f"headers: {dict(r.headers)}")]
    server.steps["echo"] = [lambda r: json_reply(completion(text=r.headers["Authorization"]))]
    summary = run(endpoint_at(url))
    assert (summary.answered, summary.failures) == (1, {"http_400": 1, "secret_echoed": 1})
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    # Parquet is compressed: look at the values, too.
    assert KEY not in str(rows_of(dataset))
    assert KEY not in repr(summary)


def test_a_reply_without_a_model_name_says_that_it_was_assumed(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    server.default = [lambda _: json_reply(completion(model=None))]
    run(endpoint_at(url))
    (row,) = rows_of(dataset)
    assert row["model"] == "moonshotai/kimi-k2.5"
    assert "model_assumed" in row["notes"]


# --- failures ---------------------------------------------------------------------------------------


def test_retry_after_is_waited_for(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    limited = [lambda _: error_reply(429, **{"Retry-After": "7"}), lambda _: error_reply(503)]
    server.default = [*limited, lambda _: json_reply(completion())]
    waits: list[float] = []
    summary = run(endpoint_at(url), waits=waits)
    assert (summary.answered, summary.requests, summary.failures) == (1, 3, {})
    assert waits == [7.5, 1.0]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda: error_reply(429), "http_429"),
        (lambda: web.Response(text="<!DOCTYPE html><h1>524</h1>", content_type="text/html", status=524), "http_524"),
        (lambda: web.Response(text="<!DOCTYPE html><h1>hi</h1>", content_type="text/html"), "not_json"),
        (lambda: web.Response(text="\n    \n\n"), "empty_body"),
        (lambda: web.Response(body=b'{"choices": "\xff"}'), "not_utf8"),
        (lambda: json_reply(completion(choices=None)), "no_choices"),
        (lambda: json_reply(completion(choices=[])), "no_choices"),
        (lambda: json_reply({"error": {"code": 402, "message": "x", "metadata": {
            "limit_source": "openrouter_in_flight_budget", "reason": "in_flight_budget_exhausted"}}}, 402),
         "in_flight_budget"),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_max_tries_times_and_asked_again_by_the_next_run(
    dataset: Dataset, run: Run, scripted: Server, kimi: Contract, reply, reason: str
):
    server, url = scripted
    write_prompts(dataset, ["odd", "good"])
    server.steps["odd"] = [lambda _: reply()]
    summary = run(endpoint_at(url, max_tries=3))
    assert (summary.answered, summary.failed_transient, summary.failed_final, summary.left) == (1, 1, 0, 0)
    assert summary.failures == {reason: 1}
    assert summary.exit_code == 3
    assert server.seen == {"odd": 3, "good": 1}
    counted = count(dataset, kimi)
    assert (counted.asked, counted.answered, counted.failed, counted.unanswered) == (2, 1, 0, 1)
    assert counted.failures_by_reason == {reason: 1}
    server.steps.clear()
    later = run(endpoint_at(url))
    assert (later.answered_before, later.answered, later.requests) == (1, 1, 1)
    counted = count(dataset, kimi)
    assert (counted.answered, counted.failed, counted.unanswered, counted.failures_by_reason) == (2, 0, 0, {})
    assert {failure.reason for failure in read_failures(dataset.failures)} == {reason}


def test_tries_that_were_paid_for_stay_on_file_and_are_counted_once(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["odd"])
    server.default = [lambda _: json_reply(completion(choices=[]))]
    assert run(endpoint_at(url, max_tries=3)).cost_usd == pytest.approx(0.003)
    assert [failure.cost_usd for failure in read_failures(dataset.failures)] == [0.001] * 3


def test_a_run_that_stops_between_two_tries_counts_what_it_paid_once(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, scripted: Server, workspace: Workspace
):
    server, url = scripted
    write_prompts(dataset, ["odd", "bad"])
    waiting = threading.Event()

    async def refuse(_: web.Request) -> web.Response:
        await asyncio.to_thread(waiting.wait, 5)
        return error_reply(401)

    async def wait_long(_: float) -> None:
        waiting.set()
        await asyncio.sleep(60)

    server.steps = {"odd": [lambda _: json_reply(completion(choices=[]))], "bad": [refuse]}
    settings = DatasetSettings(max_tokens=256)
    began = time.monotonic()
    around = Surroundings(sleep=wait_long)
    summary = generate(dataset, settings, endpoint_at(url), kimi, vocabulary, surroundings=around)
    assert time.monotonic() - began < 10
    assert (summary.cost_usd, summary.requests, summary.failed_transient) == (0.001, 2, 2)


def test_what_cannot_pass_is_sent_once_and_never_again(dataset: Dataset, run: Run, scripted: Server, kimi: Contract):
    server, url = scripted
    write_prompts(dataset, ["bad", "good"])
    server.steps["bad"] = [lambda _: error_reply(400, "context_length_exceeded")]
    summary = run(endpoint_at(url))
    assert (summary.answered, summary.failed_final, summary.exit_code) == (1, 1, 0)
    again = run(endpoint_at(url))
    assert (again.failed_before, again.requests) == (1, 0)
    assert server.seen["bad"] == 1
    (failure,) = read_failures(dataset.failures)
    assert (failure.reason, failure.final, failure.sample_id, failure.status) == ("http_400", True, "p0", 400)
    assert "context_length_exceeded" in failure.detail
    counted = count(dataset, kimi)
    assert (counted.answered, counted.failed, counted.unanswered) == (1, 1, 0)
    assert counted.failures_by_reason == {"http_400": 1}
    assert counted.complete
    # Asked otherwise it is another request, which nobody has refused.
    other = count(dataset, kimi, sampling={"top_p": 0.5})
    assert (other.failed, other.unanswered) == (0, 1)


@pytest.mark.parametrize(("status", "reason"), [(401, "unauthorized"), (402, "no_credit"), (403, "forbidden")])
def test_a_bad_key_or_no_credit_stops_the_run_and_blames_no_prompt(
    dataset: Dataset, run: Run, scripted: Server, status: int, reason: str
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(50)])
    server.default = [lambda _: error_reply(status, "go \x1b[31maway")]
    summary = run(endpoint_at(url, concurrency=2))
    assert summary.stopped is not None
    assert summary.stopped.startswith(reason)
    assert summary.stopped.isprintable()
    assert summary.left >= 45
    assert (summary.answered, summary.failed_final, summary.exit_code) == (0, 0, 3)
    assert len(server.bodies) <= 4
    server.default = [lambda _: json_reply(completion())]
    assert run(endpoint_at(url)).answered == 50


def test_what_is_in_flight_when_the_run_stops_is_kept(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.4)
        return json_reply(completion())

    async def soon(_: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return error_reply(401)

    write_prompts(dataset, ["slow", "slow too", "bad", "later"])
    server.steps = {"slow": [slow], "slow too": [slow], "bad": [soon]}
    summary = run(endpoint_at(url, concurrency=3))
    assert (summary.answered, summary.left, summary.failed_transient, summary.rows_sealed) == (2, 1, 1, 2)
    assert "later" not in server.seen


@pytest.mark.parametrize("status", [302, 404])
def test_a_wrong_url_stops_the_run_before_all_prompts_are_spent(
    dataset: Dataset, run: Run, scripted: Server, status: int
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(100)])
    server.default = [lambda _: web.Response(status=status, text="elsewhere", headers={"Location": "/x"})]
    summary = run(endpoint_at(url, concurrency=2))
    assert summary.stopped is not None
    assert f"http_{status}" in summary.stopped
    assert summary.failed_final == 0
    assert 16 <= summary.requests < 20


def test_nobody_listening_is_told_as_such(dataset: Dataset, run: Run):
    write_prompts(dataset, ["a"])
    summary = run(endpoint_at("http://127.0.0.1:9", max_tries=2))
    assert (summary.failures, summary.requests, summary.exit_code) == ({"connection_refused": 1}, 2, 3)


def test_nobody_waits_for_a_connection_of_our_own(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    at_once = most_at_once = 0

    async def reply(_: web.Request) -> web.Response:
        nonlocal at_once, most_at_once
        at_once += 1
        most_at_once = max(most_at_once, at_once)
        await asyncio.sleep(0.8)
        at_once -= 1
        return json_reply(completion())

    write_prompts(dataset, [f"q{i}" for i in range(600)])
    server.default = [reply]
    # A pool of a hundred would make the last of them wait longer than their deadline.
    summary = run(endpoint_at(url, concurrency=600, timeout_s=4, max_tries=1))
    assert (summary.answered, summary.failures) == (600, {})
    assert most_at_once > 150


def test_a_reply_that_takes_too_long_or_breaks_off_is_transient(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted

    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(120)
        return json_reply(completion())

    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        assert request.transport is not None
        request.transport.abort()
        return response

    write_prompts(dataset, ["never", "breaks"])
    server.steps = {"never": [never], "breaks": [breaks]}
    began = time.monotonic()
    summary = run(endpoint_at(url, timeout_s=0.3, max_tries=1))
    assert time.monotonic() - began < 60
    assert summary.failures == {"timeout": 1, "body_cut": 1}
    assert summary.failed_transient == 2


def test_an_answer_of_another_model_is_a_final_failure_that_is_kept(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    server.default = [lambda _: json_reply(completion(model="moonshotai/kimi-k2-0905"))]
    summary = run(endpoint_at(url))
    assert (summary.failures, summary.failed_final, summary.requests) == ({"model_mismatch": 1}, 1, 1)
    assert summary.cost_usd == 0.001
    (failure,) = read_failures(dataset.failures)
    assert (failure.model, failure.cost_usd) == ("moonshotai/kimi-k2-0905", 0.001)
    assert json.loads(failure.body or "")["choices"]


@pytest.mark.parametrize(
    ("routing", "allowed"),
    [
        ({"only": ["chutes"]}, True),
        ({"only": ["Chutes/int4"]}, True),
        ({"only": ["inceptron", "modelrun"]}, False),
        ({"order": ["inceptron"]}, True),
        ({"order": ["inceptron"], "allow_fallbacks": False}, False),
        ({"ignore": ["chutes"]}, False),
        ({"ignore": ["inceptron"]}, True),
    ],
)
def test_who_answered_is_held_against_who_was_allowed(
    dataset: Dataset, run: Run, scripted: Server, routing: dict, allowed: bool
):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    summary = run(endpoint_at(url, provider=routing))
    assert server.bodies[0]["provider"] == routing
    assert summary.answered == allowed
    assert summary.failures == ({} if allowed else {"provider_not_allowed": 1})
    assert summary.requests == 1
    # Routing is no part of what was asked: with other routing the same prompt is asked again.
    assert run(endpoint_at(url)).answered == (not allowed)


# --- what is refused before anything is sent ----------------------------------------------------------


def test_rows_of_other_settings_are_set_aside_and_asked_anew(dataset: Dataset, run: Run, scripted: Server):
    _, url = scripted
    write_prompts(dataset, ["a", "b"])
    first = run(endpoint_at(url))
    other = run(endpoint_at(url), sampling={"temperature": 0.1})
    assert (first.set_aside, other.set_aside, other.answered, other.answered_before) == (0, 2, 2, 0)
    assert "2 rows discarded" in "\n".join(other.lines())
    write_prompts(dataset, ["a", "changed"])
    third = run(endpoint_at(url), sampling={"temperature": 0.1})
    assert (third.set_aside, third.answered, third.answered_before) == (1, 1, 1)
    assert [row["sample_id"] for row in rows_of(dataset)] == ["p0", "p1"]
    assert [(discard.by, discard.rows) for discard in read_discards(dataset)] == [
        ("settings_changed", 2),
        ("settings_changed", 1),
    ]


def test_another_endpoint_or_routing_asks_nothing_again(dataset: Dataset, run: Run, scripted: Server):
    _, url = scripted
    write_prompts(dataset, ["a"])
    run(endpoint_at(url))
    again = run(endpoint_at(url, provider={"order": ["moonshotai"]}, stream=True, timeout_s=5))
    assert (again.answered_before, again.requests, again.set_aside) == (1, 0, 0)


def test_faulty_prompts_are_all_named_and_nothing_is_sent(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    write_prompts(dataset, ["a"])
    with dataset.prompts.open("a") as file:
        file.write('{"messages": []}\nnonsense\n')
    with pytest.raises(PromptsError, match="2 faults") as caught:
        run(endpoint_at(url))
    assert len(caught.value.faults) == 2
    assert not server.bodies


def test_without_a_key_nothing_is_sent(dataset: Dataset, run: Run, scripted: Server, monkeypatch: pytest.MonkeyPatch):
    server, url = scripted
    write_prompts(dataset, ["a"])
    monkeypatch.delenv("OPENROUTER_API_KEY")
    with pytest.raises(ConfigError, match="OPENROUTER_API_KEY"):
        run(endpoint_at(url))
    assert not server.bodies


def test_an_endpoint_that_was_changed_after_reading_is_checked_again(dataset: Dataset, run: Run):
    import msgspec

    write_prompts(dataset, ["a"])
    endpoint = msgspec.structs.replace(endpoint_at("http://127.0.0.1:9"), url="http://example.org/api/v1")
    with pytest.raises(ConfigError, match="https"):
        run(endpoint)


@pytest.mark.parametrize("name", ["journal", "failures"])
def test_a_folder_that_cannot_be_written_stops_the_run_before_it_pays(
    dataset: Dataset, run: Run, scripted: Server, name: str
):
    server, url = scripted
    write_prompts(dataset, ["a"])
    (dataset.folder / name).write_text("not a folder")
    with pytest.raises(StoreError, match=name):
        run(endpoint_at(url))
    assert not server.bodies
