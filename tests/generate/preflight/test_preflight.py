"""Preflights over loopback: what is said of prompts, key, credit, providers and replies, and what is kept."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from tests.generate.conftest import KEY, endpoint_at, write_prompts
from tests.generate.server import Scripted, completion, in_thread, json_reply
from tests.generate.test_crash import write_journal
from toolkit.contract import Contract
from toolkit.generate.preflight.checks import Outcome, Report, Result
from toolkit.generate.preflight.run import check_endpoints
from toolkit.generate.preparing import Job
from toolkit.generate.summary import RunSummary
from toolkit.rows import RowBuilder
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.providers import PARAMETERS, PROVIDERS, SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
from toolkit.store.journal import journal_files, read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .conftest import checks_of, results, troubles

Look = Callable[..., Report]
CHUTES, INCEPTRON, MODELRUN = PROVIDERS
QUIET = {"blank_lines": 0.0}


@pytest.fixture
def serve(kimi: Contract, vocabulary: Vocabulary) -> Callable[..., object]:
    def go(**scenario: object) -> object:
        return in_thread(serving(kimi, vocabulary, Scenario(**{"faults": QUIET, **scenario})))

    return go


def questions(count: int) -> list[str]:
    return [f"What comes after {i}?" for i in range(count)]


def billed(url: str) -> list[dict]:
    with urllib.request.urlopen(f"{url}/simulator/ledger") as reply:
        return json.load(reply)["billed"]


def rows_of(dataset: Dataset) -> list[dict]:
    return [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()]


# --- all is well ------------------------------------------------------------------------------------


def test_each_provider_is_asked_once_and_its_reply_is_a_row_that_no_run_asks_for_again(
    dataset: Dataset, look: Look, run: Callable[..., RunSummary], serve: Callable
):
    write_prompts(dataset, questions(12), max_tokens=8192)
    with serve() as url:
        report = look(endpoint_at(url))
        bills = billed(url)
        assert sorted(bill["provider"] for bill in bills) == ["Chutes", "Inceptron", "ModelRun"]
        assert (report.requests, report.rows_sealed) == (3, 3)
        assert report.cost_usd == pytest.approx(sum(bill["cost_usd"] for bill in bills))
        kept = {row["sample_id"]: row["provider"] for row in rows_of(dataset)}
        assert sorted(kept.values()) == ["Chutes", "Inceptron", "ModelRun"]
        assert journal_files(dataset.journal) == journal_files(dataset.failures) == []
        summary = run(endpoint_at(url))
        assert (summary.answered_before, summary.answered) == (3, 9)
        assert len(billed(url)) == 12
    assert sorted(row["sample_id"] for row in rows_of(dataset)) == sorted(f"p{i}" for i in range(12))


def test_the_conventions_that_may_explain_a_count_are_named_but_not_believed(
    dataset: Dataset, look: Look, serve: Callable
):
    write_prompts(dataset, questions(5), max_tokens=8192)
    with serve() as url:
        report = look(endpoint_at(url))
    assert results(report, "count") == {"Chutes": "ok", "Inceptron": "unknown", "ModelRun": "ok"}
    (told,) = checks_of(report, "count", "Inceptron")
    assert "leaves out the terminal" in told.found
    assert "30 rows have to show it" in told.found
    assert set(results(report, "prompt").values()) == {"ok"}
    assert set(results(report, "finish").values()) == {"ok"}
    assert set(results(report, "reasoning").values()) == {"ok"}
    assert report.exit_code == 0


def test_the_exact_parameters_are_sent_with_one_provider_allowed(dataset: Dataset, look: Look, scripted):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    routing = {"only": ["chutes"], "quantizations": ["int4"]}
    look(endpoint_at(url, provider=routing), sampling={"temperature": 0.6})
    (body,) = server.bodies
    assert body["provider"] == {"only": ["chutes"], "allow_fallbacks": False, "quantizations": ["int4"]}
    assert (body["max_completion_tokens"], body["temperature"]) == (256, 0.6)
    assert body["reasoning"] == {"enabled": True}


def test_nothing_is_sent_where_nothing_is_left(dataset: Dataset, look: Look, run: Callable, serve: Callable):
    write_prompts(dataset, questions(2))
    with serve() as url:
        run(endpoint_at(url))
        report = look(endpoint_at(url))
        assert len(billed(url)) == 2
    assert (report.outcome, report.requests) == (Outcome.GO, 0)
    assert "nothing is left" in checks_of(report, "left")[0].found


def test_free_checks_change_nothing_and_send_no_request(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(9))
    before = sorted(dataset.folder.rglob("*"))
    with serve() as url:
        report = look(endpoint_at(url), requests=False)
        assert billed(url) == []
    assert sorted(dataset.folder.rglob("*")) == before
    assert report.outcome is Outcome.GO
    (estimate,) = report.estimates
    assert estimate.asks == 9
    assert (estimate.completion_tokens.low, estimate.completion_tokens.high) == (0, 9 * 256)


def test_only_so_many_providers_are_asked_and_the_others_are_named(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(5))
    with serve() as url:
        report = look(endpoint_at(url), most=2)
        assert len(billed(url)) == 2
    (check,) = checks_of(report, "not asked")
    assert check.found == "modelrun: only 2 are asked"


def test_more_providers_than_open_prompts(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, ["only one"])
    with serve() as url:
        report = look(endpoint_at(url))
        assert len(billed(url)) == 1
    (check,) = checks_of(report, "not asked")
    assert check.found == "inceptron, modelrun: there is no further unanswered prompt"


# --- prompts and settings -----------------------------------------------------------------------------


def test_all_faults_of_prompts_are_told_and_nothing_is_sent(dataset: Dataset, look: Look, serve: Callable):
    dataset.folder.mkdir(parents=True)
    dataset.prompts.write_text('{"messages": 1}\n{"id": "b"}\n', encoding="utf-8")
    with serve() as url:
        report = look(endpoint_at(url))
        assert billed(url) == []
    assert report.exit_code == 2
    assert [check.result for check in checks_of(report, "prompts")] == [Result.FAIL] * len(checks_of(report, "prompts"))
    assert {check.found.split(":")[1].strip() for check in checks_of(report, "prompts")} == {"line 1", "line 2"}


def test_a_missing_key_and_a_wrong_model(dataset: Dataset, look: Look, monkeypatch: pytest.MonkeyPatch):
    write_prompts(dataset, ["a"])
    report = look(endpoint_at("http://127.0.0.1:9"), model="other/model")
    assert (report.exit_code, [c.what for c in report.failed]) == (2, ["settings"])
    monkeypatch.delenv("OPENROUTER_API_KEY")
    report = look(endpoint_at("http://127.0.0.1:9"))
    assert (report.exit_code, [c.what for c in report.failed]) == (2, ["key"])
    assert "OPENROUTER_API_KEY" in report.failed[0].found


def test_rows_that_a_run_would_set_aside_are_told_and_left_alone(
    dataset: Dataset, look: Look, run: Callable, serve: Callable
):
    write_prompts(dataset, questions(2))
    with serve() as url:
        run(endpoint_at(url))
        write_prompts(dataset, ["Another?", *questions(4)[1:]])
        report = look(endpoint_at(url))
    assert ("rows", None, "warn") in troubles(report)
    assert {row["sample_id"] for row in rows_of(dataset)} == {f"p{i}" for i in range(4)}
    assert [row["messages"] for row in rows_of(dataset) if row["sample_id"] == "p0"] != []
    assert list(read_failures(dataset.failures)) == []


def test_conversations_are_tried_by_their_first_turn(dataset: Dataset, look: Look, run: Callable, serve: Callable):
    messages = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "x"}]
    lines = [{"id": f"p{i}", "messages": [*messages, {"role": "user", "content": f"And {i}?"}]} for i in range(4)]
    dataset.folder.mkdir(parents=True)
    dataset.prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with serve() as url:
        report = look(endpoint_at(url), turns="every", max_tokens=8192)
        assert [(row["turn"], json.loads(row["messages"])) for row in rows_of(dataset)] == [(0, messages[:1])] * 3
        assert report.estimates[0].asks == 8 - 3
        summary = run(endpoint_at(url), turns="every")
    # Rows that were asked with another cap answer another question.
    assert summary.set_aside == 3


def test_prompts_with_tools_are_tried_first(dataset: Dataset, look: Look, scripted):
    server, url = scripted
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    write_prompts(dataset, ["a", "b", "a longer question with tools"])
    lines = [json.loads(line) for line in dataset.prompts.read_text(encoding="utf-8").splitlines()]
    lines[2]["tools"] = [tool]
    dataset.prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    report = look(endpoint_at(url))
    assert [body["tools"] for body in server.bodies] == [[tool]]
    assert results(report, "calls") == {"Chutes": "unknown"}


def test_a_reply_in_the_journal_of_a_killed_run_is_not_asked_for_again(
    dataset: Dataset, look: Look, scripted, kimi: Contract, vocabulary: Vocabulary
):
    server, url = scripted
    write_prompts(dataset, ["p0", "b"])
    write_journal(dataset, RowBuilder(kimi, vocabulary), ["p0"])
    report = look(endpoint_at(url), max_tokens=8192)
    assert checks_of(report, "left")[0].found == "1 of 2 answers to ask for"
    assert [body["messages"][0]["content"] for body in server.bodies] == ["b"]
    assert (report.rows_sealed, len(rows_of(dataset))) == (2, 2)


# --- key, credit, endpoint -----------------------------------------------------------------------------


def test_an_endpoint_that_is_not_there(dataset: Dataset, look: Look):
    write_prompts(dataset, ["a"])
    report = look(endpoint_at("http://127.0.0.1:9"))
    assert report.exit_code == 3
    assert [(c.what, c.found) for c in report.failed] == [("endpoint", "GET /key: connection_refused")]
    assert not dataset.journal.exists()


def test_an_ordinary_key_may_not_ask_for_credit_which_is_no_fault(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(3))
    with serve() as url:
        report = look(endpoint_at(url))
    (check,) = checks_of(report, "credit")
    assert (check.result, "403" in check.found) == (Result.UNKNOWN, True)
    assert report.exit_code == 0


def test_a_key_whose_limit_is_used_up_is_a_no_go_and_nothing_is_sent(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(3))
    with serve(account=AccountSettings(key_limit_usd=0.0)) as url:
        report = look(endpoint_at(url))
        assert billed(url) == []
    assert report.exit_code == 3
    assert ("key", None, "fail") in troubles(report)


def test_credit_that_cannot_be_enough_is_a_no_go_unless_a_budget_is_below_it(
    dataset: Dataset, look: Look, serve: Callable
):
    write_prompts(dataset, questions(100))
    options = {"expected_tokens": 200, "requests": False}
    with serve(account=AccountSettings(key_limit_usd=0.001)) as url:
        assert look(endpoint_at(url), **options).exit_code == 3
        assert look(endpoint_at(url), dollars=0.0005, **options).outcome is Outcome.WARNINGS
    with serve(account=AccountSettings(key_limit_usd=1000.0)) as url:
        assert look(endpoint_at(url), **options).outcome is Outcome.GO


def test_no_request_is_sent_that_may_cost_more_than_the_budget(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(3))
    with serve() as url:
        report = look(endpoint_at(url), dollars=1e-6)
        assert billed(url) == []
        limited = look(endpoint_at(url), max_total_tokens=300)
        assert len(billed(url)) == 1
    assert set(results(report, "request").values()) == {"unknown"}
    assert sorted(results(limited, "request").values()) == ["unknown", "unknown"]


# --- who may answer -------------------------------------------------------------------------------------


def test_a_provider_that_is_asked_for_and_not_there(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(3))
    with serve() as url:
        report = look(endpoint_at(url, provider={"only": ["chutes", "fireworks"]}))
        named = look(endpoint_at(url, provider={"only": ["Chutes", "modelrun"]}))
        assert billed(url) == []
    (check,) = report.failed
    assert (check.what, check.provider, report.exit_code) == ("routing only", "fireworks", 3)
    assert "found chutes, inceptron, modelrun" in check.found
    (check,) = named.failed
    assert "'Chutes' is no slug; expected 'chutes'" in check.found


@pytest.mark.parametrize(
    ("provider", "routing", "why"),
    [
        ({"quantization": "fp8"}, {"quantizations": ["int4"]}, "quantization fp8 is not one of int4"),
        ({"completion_usd": 3e-6}, {"max_price": {"completion": 2.5}}, "completion costs $3 for a million tokens"),
        ({"max_completion_tokens": 100}, {}, "returns at most 100 tokens, asked for 256"),
        (
            {"supported_parameters": PARAMETERS - {"temperature"}},
            {"require_parameters": True},
            "does not support temperature",
        ),
    ],
)
def test_a_provider_that_cannot_answer_what_is_asked(
    dataset: Dataset, look: Look, serve: Callable, provider: dict, routing: dict, why: str
):
    write_prompts(dataset, questions(2))
    with serve(providers=(replace(CHUTES, **provider),)) as url:
        report = look(endpoint_at(url, provider=routing), sampling={"temperature": 0.6})
    (check,) = report.failed
    assert (check.what, report.exit_code) == ("providers", 3)
    assert why in check.found


def test_what_a_list_says_of_each_provider(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(3))
    short = replace(INCEPTRON, context_length=200, status=-2)
    dropping = replace(MODELRUN, supported_parameters=PARAMETERS - {"top_k"})
    with serve(providers=(CHUTES, short, dropping)) as url:
        report = look(endpoint_at(url), requests=False, sampling={"top_k": 20}, providers=["Chutes", "Inceptron"])
    assert results(report, "context") == {"Chutes": "ok", "Inceptron": "warn", "ModelRun": "ok"}
    assert results(report, "status") == {"Inceptron": "unknown"}
    assert results(report, "parameters") == {"Chutes": "ok", "Inceptron": "ok", "ModelRun": "warn"}
    (check,) = checks_of(report, "allow list")
    assert "ModelRun may answer" in check.found
    (price,) = checks_of(report, "price", "ModelRun")
    assert price.found == "$0.5 prompt, $2.4 completion for a million tokens"
    (estimate,) = report.estimates
    assert estimate.usd is not None
    assert estimate.usd.high == estimate.usd_by_provider["ModelRun"].high


def test_no_context_with_room_is_a_no_go(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, [*questions(3), "word " * 300])
    with serve(providers=(replace(CHUTES, context_length=400),)) as url:
        report = look(endpoint_at(url))
        assert billed(url) == []
    assert [(c.what, c.provider) for c in report.failed] == [("context", "Chutes")]


# --- replies ----------------------------------------------------------------------------------------------


def test_a_provider_that_trims_beside_one_that_does_not(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(6), max_tokens=8192)
    others = tuple(replace(CHUTES, name=f"Plain{i}", slug=f"plain{i}") for i in range(4))
    with serve(providers=(replace(CHUTES, name="Trim", slug="trim", trims_text=True), *others)) as url:
        report = look(endpoint_at(url))
    told = results(report, "white space")
    assert told["Trim"] == "warn"
    assert "ok" in told.values()
    assert "it may be trimmed" in checks_of(report, "white space", "Trim")[0].found


def test_one_reply_without_white_space_proves_nothing(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(6), max_tokens=8192)
    with serve(providers=(replace(CHUTES, trims_text=True),)) as url:
        report = look(endpoint_at(url))
    assert results(report, "white space") == {"Chutes": "unknown"}


def test_a_count_that_nothing_explains_and_a_prompt_that_is_another(dataset: Dataset, look: Look, serve: Callable):
    tool = {"type": "function", "function": {"name": "find", "description": "x", "parameters": {"type": "object"}}}
    write_prompts(dataset, questions(2), max_tokens=8192, tools=[tool])
    provider = replace(CHUTES, prompt_offset_with_tools=7, faults={"usage_off_by_one": 1.0})
    with serve(providers=(provider,)) as url:
        report = look(endpoint_at(url))
    assert results(report, "count") == {"Chutes": "warn"}
    assert results(report, "prompt") == {"Chutes": "warn"}
    assert "tools are declared" in checks_of(report, "prompt")[0].found
    assert results(report, "calls") == {"Chutes": "ok"}
    assert report.outcome is Outcome.WARNINGS


def test_a_provider_that_was_excluded_and_answers_all_the_same(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(6))
    with serve(faults={"other_provider": 1.0}) as url:
        report = look(endpoint_at(url, provider={"only": ["chutes"]}))
    (check, *_) = report.failed
    assert (check.what, check.provider) == ("who answered", "chutes")
    assert "expected one of chutes" in check.found
    assert report.exit_code == 3
    assert rows_of(dataset) == []
    (failure,) = read_failures(dataset.failures)
    assert (failure.reason, failure.final) == ("provider_not_allowed", False)
    assert report.cost_usd > 0


@pytest.mark.parametrize(
    ("habit", "what"),
    [
        ("reasoning_null", "reasoning"),
        ("finish_null", "finish"),
        ("terminal_in_text", "think markers"),
        ("all_in_reasoning", "row"),
    ],
)
def test_replies_that_are_not_as_they_should_be(dataset: Dataset, look: Look, serve: Callable, habit: str, what: str):
    write_prompts(dataset, questions(2), max_tokens=8192)
    with serve(providers=(CHUTES,), faults={habit: 1.0}) as url:
        report = look(endpoint_at(url))
    assert results(report, what) == {"Chutes": "warn"}


def test_refusals_that_pass_are_asked_again_and_others_make_no_ask_hopeless(
    dataset: Dataset, look: Look, run: Callable, scripted
):
    server, url = scripted
    write_prompts(dataset, ["hi"])
    error = lambda status: lambda _: json_reply({"error": {"code": status, "message": "no"}}, status)  # noqa: E731
    server.steps["hi"] = [error(429), error(400), lambda _: json_reply(completion())]
    report = look(endpoint_at(url))
    assert report.requests == 2
    assert ("request", None, "warn") in troubles(report)
    assert (report.exit_code, rows_of(dataset)) == (3, [])
    assert run(endpoint_at(url)).answered == 1


# --- secrets and hostile servers -----------------------------------------------------------------------------


class Hostile(Scripted):
    """Echoes the key and escapes from every side."""

    async def aside(self, request: web.Request) -> web.Response:
        echoed = f"\x1b[31m{request.headers['Authorization']}"
        data = {
            "limit": echoed, "limit_remaining": 5, "expires_at": echoed, "limit_reset": echoed,
            "endpoints": [
                {"provider_name": echoed, "tag": "evil", "pricing": {"prompt": "nan", "completion": echoed}},
                {"provider_name": "x" * 10_000, "tag": 7}, None, {"provider_name": "E\x1b", "tag": "e", "status": 2**70}
            ],
        }  # fmt: skip
        return json_reply({"data": data})


def test_no_key_and_no_escape_reaches_the_report_or_a_file(dataset: Dataset, look: Look, tmp_path: Path):
    server = Hostile(default=[lambda r: json_reply(completion(text=r.headers["Authorization"]))])
    write_prompts(dataset, ["a", "b", "c"])

    def routes(app: web.Application) -> None:
        app.router.add_get("/{path:.*}", server.aside)

    with in_thread(server.serving(routes)) as url:
        report = look(endpoint_at(url))
    said = json.dumps(report.as_json(), ensure_ascii=False)
    assert KEY not in said
    assert "\x1b" not in said
    assert "\\u001b" not in said
    assert report.outcome is Outcome.NO_GO
    assert [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []


# --- engines ---------------------------------------------------------------------------------------------------


def sglang_at(url: str, **options: object):
    from toolkit.config import parse_settings

    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    return parse_settings(f'[endpoints.sglang]\nurl = "{url}"\n{table}'.encode(), "t").endpoint("sglang")


def test_an_engine_of_ones_own(dataset: Dataset, look: Look, serve: Callable):
    write_prompts(dataset, questions(3), max_tokens=8192)
    with serve() as url:
        report = look(sglang_at(url))
    assert results(report, "health") == {None: "ok"}
    assert results(report, "ids") == {"sglang": "ok"}
    assert results(report, "count") == {"sglang": "ok"}
    assert (report.outcome, report.rows_sealed) == (Outcome.GO, 1)
    (estimate,) = report.estimates
    assert (estimate.usd.low, estimate.usd.high, estimate.asks) == (0.0, 0.0, 2)


def test_an_engine_that_is_starting(dataset: Dataset, look: Look, serve: Callable, job_at: Callable[..., Job]):
    write_prompts(dataset, questions(3))
    with serve(healthy=False) as url:
        report = look(sglang_at(url))
        cheap = check_endpoints([job_at(sglang_at(url))])
    assert [(c.what, c.found) for c in report.failed] == [("health", "GET /health: status 503")]
    assert (report.exit_code, report.requests, cheap.exit_code) == (3, 0, 3)


def test_cheap_checks_say_unknown_where_a_server_has_no_side(scripted, job_at: Callable[..., Job]):
    _, url = scripted
    report = check_endpoints([job_at(endpoint_at(url))])
    assert report.exit_code == 0
    assert {check.result for check in report.checks} == {Result.UNKNOWN}


def test_providers_are_named_once(serve: Callable, job_at: Callable[..., Job]):
    twice = SimulatedProvider(name="Chutes", slug="chutes2")
    with serve(providers=(CHUTES, twice)) as url:
        report = check_endpoints([job_at(endpoint_at(url))])
    assert checks_of(report, "providers")[0].found == "2 of 2 may answer: Chutes, Chutes"
