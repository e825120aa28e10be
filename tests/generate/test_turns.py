"""Whole runs over conversations, samples and probes: what becomes a row, and what a later run goes on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from toolkit.accounting import accounting
from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.errors import ConfigError, StoreError
from toolkit.generate.preparing import Job, Probe
from toolkit.generate.run import Surroundings, generate_all
from toolkit.generate.summary import RunSummary
from toolkit.store.files import sole_writer
from toolkit.store.journal import journal_files, read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .conftest import PassingTime, endpoint_at, write_prompts
from .server import Scripted, completion, error_reply, json_reply

Run = Callable[..., RunSummary]
Server = tuple[Scripted, str]


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    rows = [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()]
    return sorted(rows, key=lambda row: (row["sample_id"], row["sample_index"], row["turn"], row["probe"]))


def write_conversations(dataset: Dataset, *conversations: list[dict[str, Any]]) -> None:
    dataset.folder.mkdir(parents=True, exist_ok=True)
    lines = [{"id": f"c{i}", "messages": messages} for i, messages in enumerate(conversations)]
    dataset.prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def talk(*texts: str) -> list[dict[str, Any]]:
    """user, assistant, user …"""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def echo(request_body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return completion(f"own:{request_body['messages'][-1]['content']}", **changes)


async def reply(request: web.Request) -> web.Response:
    return json_reply(echo(await request.json()))


# --- turns -----------------------------------------------------------------------------------------


def test_every_turn_is_a_row_on_our_own_answers(dataset: Dataset, run: Run, scripted: Server, kimi: Contract):
    server, url = scripted
    server.default = [reply]
    write_conversations(dataset, talk("a", "written", "b", "written", "c"), talk("x"))
    summary = run(endpoint_at(url), turns="every")
    assert (summary.asked, summary.answered, summary.left, summary.rows_sealed) == (4, 4, 0, 4)
    rows = rows_of(dataset)
    assert [(row["sample_id"], row["turn"], row["content"]) for row in rows] == [
        ("c0", 0, "own:a"), ("c0", 1, "own:b"), ("c0", 2, "own:c"), ("c1", 0, "own:x"),
    ]  # fmt: skip
    assert len({row["row_key"] for row in rows}) == 4
    asked = json.loads(rows[2]["messages"])
    assert [message["content"] for message in asked] == ["a", "own:a", "b", "own:b", "c"]
    assert asked[1]["reasoning_content"] == "Greet."
    assert json.loads(rows[2]["payload"])["request"]["messages"][1]["content"] == "own:a"
    again = run(endpoint_at(url), turns="every")
    assert (again.requests, again.answered_before, again.set_aside) == (0, 4, 0)
    counted = accounting(dataset, kimi, DatasetSettings(max_tokens=256, turns="every"))
    assert (counted.asked, counted.answered, counted.unanswered, counted.complete) == (4, 4, 0, True)


def test_a_conversation_goes_on_in_the_middle(dataset: Dataset, run: Run, scripted: Server, kimi: Contract):
    server, url = scripted
    server.default = [reply]
    server.steps["b"] = [lambda _: error_reply(502)]
    write_conversations(dataset, talk("a", "written", "b", "written", "c"))
    first = run(endpoint_at(url, max_tries=2), turns="every")
    assert (first.answered, first.failed_transient, first.left) == (1, 1, 1)
    counted = accounting(dataset, kimi, DatasetSettings(max_tokens=256, turns="every"))
    assert (counted.asked, counted.answered, counted.unanswered) == (3, 1, 2)
    server.steps.clear()
    second = run(endpoint_at(url), turns="every")
    assert (second.answered_before, second.answered, second.left, second.set_aside) == (1, 2, 0, 0)
    assert server.seen["a"] == 1
    third = run(endpoint_at(url), turns="every")
    assert (third.requests, third.set_aside) == (0, 0)


def test_a_turn_that_was_cut_ends_its_conversation_for_good(
    dataset: Dataset, run: Run, scripted: Server, kimi: Contract
):
    server, url = scripted
    body = completion("cut")
    body["choices"][0] |= {"finish_reason": "length", "native_finish_reason": "length"}
    server.default = [lambda _: json_reply(body)]
    write_conversations(dataset, talk("a", "written", "b", "written", "c"))
    summary = run(endpoint_at(url), turns="every")
    assert (summary.asked, summary.answered, summary.failed_final, summary.left) == (3, 1, 2, 0)
    assert (summary.failures, summary.exit_code) == ({"turn_incomplete": 2}, 0)
    again = run(endpoint_at(url), turns="every")
    assert (again.requests, again.answered_before, again.failed_before, again.left) == (0, 1, 2, 0)
    assert len(list(read_failures(dataset.failures))) == 2
    counted = accounting(dataset, kimi, DatasetSettings(max_tokens=256, turns="every"))
    assert (counted.asked, counted.answered, counted.failed, counted.unanswered) == (3, 1, 2, 0)


def test_a_turn_that_was_refused_for_good_is_not_asked_again(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    server.default = [reply]
    server.steps["b"] = [lambda _: error_reply(400)]
    write_conversations(dataset, talk("a", "written", "b", "written", "c"))
    first = run(endpoint_at(url), turns="every")
    assert (first.answered, first.failed_final, first.left) == (1, 2, 0)
    again = run(endpoint_at(url), turns="every")
    assert (again.requests, again.failed_before, again.left) == (0, 2, 0)


def test_other_settings_ask_whole_conversations_anew(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    server.default = [reply]
    write_conversations(dataset, talk("a", "written", "b"), talk("x", "written", "y"))
    run(endpoint_at(url), turns="every")
    other = run(endpoint_at(url), turns="every", sampling={"temperature": 0.5})
    assert (other.set_aside, other.answered, other.answered_before) == (4, 4, 0)
    # The last turn alone is another question.
    last = run(endpoint_at(url), sampling={"temperature": 0.5})
    assert (last.asked, last.answered) == (2, 2)


def test_samples_are_conversations_of_their_own(dataset: Dataset, run: Run, scripted: Server):
    server, url = scripted
    server.default = [reply]
    write_conversations(dataset, talk("a", "written", "b"))
    summary = run(endpoint_at(url), turns="every", samples=2)
    assert (summary.asked, summary.answered) == (4, 4)
    assert [(row["sample_index"], row["turn"]) for row in rows_of(dataset)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


# --- probes ------------------------------------------------------------------------------------------


@pytest.fixture
def probing(dataset: Dataset, kimi: Contract, vocabulary: Vocabulary) -> Callable[..., RunSummary]:
    def go(
        url: str,
        other_url: str,
        percent: float = 50.0,
        advance: Callable[[int], None] = lambda _: None,
        **settings: Any,
    ) -> RunSummary:
        other = msgspec.structs.replace(endpoint_at(other_url), name="other", source="vllm")
        passing = PassingTime()
        job = Job(
            dataset=dataset, settings=DatasetSettings(max_tokens=256, **settings), endpoint=endpoint_at(url),
            contract=kimi, vocabulary=vocabulary, probe=Probe(percent=percent, endpoint=other),
        )  # fmt: skip
        around = Surroundings(sleep=passing.sleep, ticks=passing.ticks)
        return generate_all([job], advance=advance, surroundings=around)[0]

    return go


def test_a_share_of_the_answered_prompts_is_asked_again_of_another_source(
    dataset: Dataset, scripted: Server, probing: Run, run: Run, kimi: Contract
):
    server, url = scripted
    write_prompts(dataset, [f"q{i}" for i in range(60)])
    advanced: list[int] = []
    summary = probing(url, f"{url}", advance=advanced.append)
    assert (summary.asked, summary.answered) == (60, 60)
    assert sum(advanced) == 60
    assert 15 < summary.probes_asked == summary.probes_answered < 45
    rows = rows_of(dataset)
    probes = [row for row in rows if row["probe"]]
    assert len(probes) == summary.probes_answered
    assert {row["source"] for row in probes} == {"vllm"}
    asked = {row["sample_id"]: row["row_key"] for row in rows if not row["probe"]}
    assert all(asked[row["sample_id"]] == row["row_key"] for row in probes)
    before = len(server.bodies)
    assert (probing(url, url).probes_asked, len(server.bodies)) == (0, before)
    # More of them contain the fewer; probes are no answers.
    assert probing(url, url, percent=100.0).probes_asked == 60 - len(probes)
    counted = accounting(dataset, kimi, DatasetSettings(max_tokens=256))
    assert (counted.asked, counted.answered, counted.failed, counted.unanswered) == (60, 60, 0, 0)
    assert run(endpoint_at(url)).answered_before == 60


def test_a_probe_that_fails_blames_no_ask(dataset: Dataset, scripted: Server, probing: Run, run: Run, kimi: Contract):
    server, url = scripted
    write_prompts(dataset, ["a"])
    server.steps["a"] = [lambda _: json_reply(completion()), lambda _: error_reply(400)]
    summary = probing(url, url, percent=100.0)
    assert (summary.answered, summary.probes_failed, summary.failed_final, summary.complete) == (1, 1, 0, False)
    (failure,) = read_failures(dataset.failures)
    assert failure.probe
    counted = accounting(dataset, kimi, DatasetSettings(max_tokens=256))
    assert (counted.answered, counted.failed, counted.complete) == (1, 0, True)


# --- several datasets --------------------------------------------------------------------------------


def jobs(workspace: Workspace, url: str, kimi: Contract, vocabulary: Vocabulary, *names: str) -> list[Job]:
    settings = DatasetSettings(max_tokens=256)
    return [
        Job(
            dataset=workspace.dataset_named(name), settings=settings, endpoint=endpoint_at(url), contract=kimi,
            vocabulary=vocabulary,
        )
        for name in names
    ]  # fmt: skip


def test_several_datasets_share_a_budget_and_have_books_of_their_own(
    workspace: Workspace, scripted: Server, kimi: Contract, vocabulary: Vocabulary
):
    server, url = scripted
    for name, count in (("B1", 12), ("B2", 30)):
        write_prompts(workspace.dataset_named(name), [f"{name} {i}" for i in range(count)])
    usage = {"prompt_tokens": 9, "completion_tokens": 200, "cost": 0.01}
    server.default = [lambda _: json_reply(completion(usage=usage))]
    first, second = generate_all(jobs(workspace, url, kimi, vocabulary, "B1", "B2"), dollars=0.2)
    assert (first.answered, first.complete) == (12, True)
    assert 0 < second.answered < 9
    assert first.cost_usd + second.cost_usd <= 0.2
    assert "the budget" in (second.stopped or "")
    assert len(rows_of(workspace.dataset_named("B2"))) == second.answered
    rest = generate_all(jobs(workspace, url, kimi, vocabulary, "B1", "B2"))
    assert [(one.answered_before, one.left) for one in rest] == [(12, 0), (second.answered, 0)]


def test_one_dataset_that_cannot_be_asked_keeps_all_from_being_asked(
    workspace: Workspace, scripted: Server, kimi: Contract, vocabulary: Vocabulary
):
    server, url = scripted
    for name in ("B1", "B2"):
        write_prompts(workspace.dataset_named(name), ["a"])
    both = jobs(workspace, url, kimi, vocabulary, "B1", "B2")
    with sole_writer(both[1].dataset.lock), pytest.raises(StoreError, match="another process"):
        generate_all(both)
    with pytest.raises(ConfigError, match="expected each of them once"):
        generate_all([both[0], both[0]])
    assert not server.bodies
    assert [summary.answered for summary in generate_all(both)] == [1, 1]
    assert journal_files(both[0].dataset.journal) == []
