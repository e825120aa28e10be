"""`tokenproof preflight`, and what `generate` does with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.generate.server import in_thread
from toolkit.contract import Contract
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.providers import PROVIDERS
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.server import serving
from toolkit.vocabulary import Vocabulary

from .workspace import Command, run, write_prompts

__all__ = ["run"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-v1-0123456789abcdef-not-a-real-key")
    write_prompts(tmp_path, "B3_numbers", 6)
    write_prompts(tmp_path, "B4_words", 3)
    return tmp_path


@pytest.fixture
def url(kimi: Contract, vocabulary: Vocabulary) -> Iterator[str]:
    with in_thread(serving(kimi, vocabulary, Scenario())) as base:
        yield f"{base}/api/v1"


def test_go(root: Path, run: Command, url: str) -> None:
    told = run("preflight", "B3", "B4", "--url", url, root=root)
    assert told.code == 0
    assert "answered as asked; " in " ".join(told.out.split())
    assert "GO" in told.out.splitlines()[-1]
    assert "6 requests" in told.out
    assert "6 rows kept" in told.out
    told = run("preflight", "B3", "--url", url, "--no-requests", "--format", "json", root=root)
    found = json.loads(told.out)
    assert (told.code, found["outcome"], found["datasets"]) == (0, "go", ["B3_numbers"])
    assert found["estimates"][0]["asks"] == 3
    assert {"about", "what", "provider", "result", "expected", "found"} == set(found["checks"][0])


def test_no_go_for_prompts_and_for_the_endpoint(root: Path, run: Command) -> None:
    told = run("preflight", "B3", "--url", "http://127.0.0.1:9/api/v1", root=root)
    assert (told.code, "connection_refused" in told.out, "NO-GO" in told.out) == (3, True, True)
    (root / "datasets/B3_numbers/prompts.jsonl").write_text('{"mesages": []}\n{}\n', encoding="utf-8")
    told = run("preflight", "B3", "--url", "http://127.0.0.1:9/api/v1", root=root)
    assert told.code == 2
    assert "line 1" in told.out
    assert "line 2" in told.out


def test_generate_sends_nothing_where_the_endpoint_says_no(
    root: Path,
    run: Command,
    kimi: Contract,
    vocabulary: Vocabulary,
) -> None:
    empty = Scenario(account=AccountSettings(key_limit_usd=0.0))
    with in_thread(serving(kimi, vocabulary, empty)) as base:
        words = ("generate", "B3", "--url", f"{base}/api/v1")
        told = run(*words, root=root)
        assert (told.code, told.out) == (3, "")
        assert "preflight: NO-GO" in told.err
        assert "$0.00 left" in told.err
        assert "context" in told.err  # what is not known is told as well
        told = run(*words, "--format", "json", root=root)
        assert json.loads(told.out)["error"] == "PreflightError"
        told = run(*words, "--no-preflight", root=root)
        assert (told.code, "preflight" in told.err) == (3, False)


def test_a_warning_does_not_block_where_nobody_sits(
    root: Path,
    run: Command,
    kimi: Contract,
    vocabulary: Vocabulary,
) -> None:
    (root / "tokenproof.toml").write_text('[defaults]\nproviders = ["Chutes"]\n', encoding="utf-8")
    with in_thread(serving(kimi, vocabulary, Scenario(providers=PROVIDERS[:2]))) as base:
        told = run("generate", "B3", "--url", f"{base}/api/v1", root=root)
    assert told.code == 0
    assert "WARN openrouter allow list: Inceptron may answer" in told.err
    assert "6 answered" in told.out


def test_the_whole_preflight_runs_where_answers_are_paid_for_and_its_rows_count(
    root: Path,
    run: Command,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolkit.cli.preflight.is_paid", lambda endpoint: True)
    told = run("generate", "B3", "--url", url, "--format", "json", root=root)
    assert told.code == 0
    assert "preflight: GO" in told.err
    assert "3 rows kept" in told.err
    found = json.loads(told.out)
    assert (found["asked"], found["answered_before"], found["answered"]) == (6, 3, 3)


@pytest.mark.parametrize(
    ("url", "source", "key", "paid"),
    [
        ("https://openrouter.ai/api/v1", "openrouter", "K", True),
        ("http://127.0.0.1:8000/api/v1", "openrouter", "K", False),
        ("http://gpu7:30000", "sglang", "", False),
        ("https://api.example.org/v1", "other", "K", True),
    ],
)
def test_who_is_paid(url: str, source: str, key: str, paid: bool) -> None:
    from toolkit.cli.preflight import is_paid
    from toolkit.config import EndpointSettings

    assert is_paid(EndpointSettings(name="x", url=url, source=source, key_env=key)) is paid
