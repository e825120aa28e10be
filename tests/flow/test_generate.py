"""`tokenproof generate` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.generate.server import in_thread
from toolkit.accounting import accounting
from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
from toolkit.store.workspace import Workspace
from toolkit.vocabulary import Vocabulary

from .workspace import Command, write_prompts


@pytest.fixture
def url(kimi: Contract, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-v1-0123456789abcdef-not-a-real-key")
    with in_thread(serving(kimi, vocabulary, Scenario())) as base:
        yield f"{base}/api/v1"


def test_several_datasets_in_one_run(run: Command, tmp_path: Path, url: str):
    for name in ("B1", "B2_long"):
        write_prompts(tmp_path, name, 5)
    outcome = run("generate", "B1", "B2", "--url", url, "--format", "json", root=tmp_path)
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert told["complete"] is True
    assert [(one["dataset"], one["answered"]) for one in told["runs"]] == [("B1", 5), ("B2_long", 5)]
    again = run("generate", "B1", "--url", url, "--format", "json", root=tmp_path)
    assert (again.code, json.loads(again.out)["answered_before"]) == (0, 5)


def test_a_budget_that_is_spent_is_an_incomplete_run(run: Command, tmp_path: Path, url: str):
    write_prompts(tmp_path, "B3", 5)
    words = ("generate", "B3", "--url", url, "--tokens", "8200")
    outcome = run(*words, root=tmp_path)
    assert outcome.code == 3
    assert "B3: 5 prompts: 1 answered, 4 left" in outcome.out
    assert "  1 row sealed" in outcome.out
    assert "the budget of 8,200 tokens is spent" in outcome.out
    assert "raise the budget of tokens" in outcome.out
    assert "run the same command again" not in outcome.out
    assert run(*words, root=tmp_path).code == 3
    told = run("status", "B3", root=tmp_path).out
    assert "next        raise the budget of tokens" in told
    assert ", then tokenproof generate B3" in told


def test_a_budget_below_one_answer_is_refused_before_anything_is_sent(run: Command, tmp_path: Path, url: str):
    write_prompts(tmp_path, "B3", 5)
    outcome = run("generate", "B3", "--url", url, "--tokens", "2000", root=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "the budget of 2,000 tokens is smaller than one answer may be (max_tokens is 8,192)" in outcome.err
    assert "raise --tokens" in outcome.err
    assert [path.name for path in (tmp_path / "datasets" / "B3").iterdir() if path.name == "run.json"] == []


def test_samples_that_were_asked_for_stay_asked_for(run: Command, tmp_path: Path, url: str, kimi: Contract):
    write_prompts(tmp_path, "B3", 3)
    dataset = Workspace(tmp_path).dataset_named("B3")
    assert run("generate", "B3", "--url", url, "--samples", "2", "--tokens", "8200", root=tmp_path).code == 3
    counted = accounting(dataset, kimi, DatasetSettings())
    assert (counted.asked, counted.answered, counted.unanswered) == (6, 1, 5)
    told = run("status", "B3", root=tmp_path).out
    assert "1 of 6" in told
    assert "tokenproof generate B3 --samples 2" in told
    # Without the option the run goes on with what was asked for; with it, it may ask for less.
    outcome = run("generate", "B3", "--url", url, root=tmp_path)
    assert (outcome.code, outcome.out.splitlines()[0]) == (
        0, "B3: 3 prompts, 6 answers asked for: 5 answered, 1 answered before",
    )  # fmt: skip
    assert accounting(dataset, kimi, DatasetSettings()).complete
    assert run("generate", "B3", "--url", url, "--samples", "1", root=tmp_path).code == 0
    assert accounting(dataset, kimi, DatasetSettings()).asked == 3
    assert "3 of 3" in run("status", "B3", root=tmp_path).out


def test_a_run_whose_samples_cannot_be_read_is_no_complete_dataset(tmp_path: Path, kimi: Contract):
    write_prompts(tmp_path, "B3", 3)
    dataset = Workspace(tmp_path).dataset_named("B3")
    (dataset.folder / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match="remove it to go by the settings"):
        accounting(dataset, kimi, DatasetSettings())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--probe", "5"), "expected --probe-endpoint, or one endpoint beside 'openrouter'; found none"),
        (("--probe", "0"), "expected a percentage above 0 and at most 100, found 0"),
        (("--probe", "5", "--probe-endpoint", "openrouter"), "expected another endpoint than the dataset's own"),
        (("--probe", "5", "--probe-endpoint", "x"), "endpoint 'x'"),
        (("--probe-endpoint", "x"), "expected --probe with it"),
        (("--dollars", "-1"), "expected an amount above 0"),
    ],
)
def test_options_that_will_not_do_are_refused_before_anything_is_sent(
    run: Command, tmp_path: Path, words: tuple[str, ...], told: str
):
    write_prompts(tmp_path, "B3", 1)
    outcome = run("generate", "B3", *words, root=tmp_path)
    assert outcome.code == 2
    assert told in outcome.err


def test_a_dataset_named_twice_is_refused(run: Command, tmp_path: Path, url: str):
    write_prompts(tmp_path, "B3_x", 1)
    outcome = run("generate", "B3", "B3_x", "--url", url, root=tmp_path)
    assert outcome.code == 2
    assert "expected each of them once" in outcome.err


def evidence_of(root: Path) -> dict[str, int]:
    verdict = json.loads((root / "reports" / "B3" / "verdict.json").read_bytes())
    return {name: count for name, count in verdict["evidence"].items() if count}


def test_ids_that_follow_logprobs_are_proved_by_them(run: Command, tmp_path: Path, url: str):
    write_prompts(tmp_path, "B3", 6)
    (tmp_path / "tokenproof.toml").write_text(f'[endpoints.openrouter]\nurl = "{url}"\nlogprobs = true\n')
    assert run("generate", "B3", root=tmp_path).code == 0
    outcome = run("audit", "B3", root=tmp_path)
    assert outcome.code == 0, outcome.out
    assert evidence_of(tmp_path) == {"logprobs": 6}


def test_streamed_logprobs_of_an_engine_that_gives_no_ids(
    run: Command, tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
):
    write_prompts(tmp_path, "B3", 6)
    with in_thread(serving(kimi, vocabulary, Scenario(engine="vllm"))) as base:
        (tmp_path / "tokenproof.toml").write_text(
            f'[endpoints.local]\napi = "chat"\nurl = "{base}/v1"\nsource = "vllm"\nids = "off"\nlogprobs = true\n'
            'stream = true\n[datasets.B3]\nendpoint = "local"\n'
        )
        assert run("generate", "B3", "--no-preflight", root=tmp_path).code == 0
    outcome = run("audit", "B3", root=tmp_path)
    # The ids are known, but from an engine there is better to be had, and the shipped suite asks for it.
    assert (outcome.code, "engine_ids" in outcome.out) == (1, True)
    assert evidence_of(tmp_path) == {"logprobs": 6}
