"""`tokenproof generate` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.generate.server import in_thread
from toolkit.contract import Contract
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
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
    outcome = run("generate", "B3", "--url", url, "--tokens", "100", root=tmp_path)
    assert outcome.code == 3
    assert "the budget of 100 tokens is spent" in outcome.out
    assert "run the same command again" in outcome.out


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
