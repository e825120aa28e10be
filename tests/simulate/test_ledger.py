"""The server's books: identities, what was billed, what went out whole, and their file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.contract import Contract
from toolkit.errors import StoreError
from toolkit.simulate.answers import prompt_key
from toolkit.simulate.ledger import Ledger
from toolkit.simulate.native import prompt_ids_key
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary

from .client import CHAT, Client, play, request


def lines_of(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def test_identity_is_what_is_asked_and_by_whom(kimi: Contract, vocabulary: Vocabulary) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"max_tokens": 5},
        {"provider": {"only": ["chutes"]}},
        {"stream": True},
        {"seed": 7},
        {"session_id": "s"},
        {"user": "u"},
        {"reasoning": {"enabled": False}},
    )

    async def script(client: Client) -> Any:
        for fields in changes:
            await client.post(request("x", **fields))
        return client.simulation.ledger.entries

    entries = play(kimi, vocabulary, Scenario(), script)
    key = prompt_key([{"role": "user", "content": "x"}], None, "thinking")
    assert [entry.identity for entry in entries[:4]] == [key] * 4
    assert [entry.attempt for entry in entries] == [0, 1, 2, 3, 0, 0, 0, 0]
    assert len({entry.identity for entry in entries}) == 5
    by_hand = hashlib.sha256(json.dumps([key, 7, None, None], separators=(",", ":")).encode()).hexdigest()
    assert entries[4].identity == by_hand
    assert entries[4].prompt_key == key
    assert len({entry.body_sha256 for entry in entries}) == len(changes)


def test_the_file_tells_three_steps_and_is_there_before_the_last_byte(
    kimi: Contract, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"

    async def script(client: Client) -> Any:
        async with client.session.post(client.url + CHAT, data=json.dumps(request("x"))) as response:
            reply = json.loads(await response.read())
            at_last_byte = lines_of(path)
        bad = await client.post(b"{")
        unknown = await client.post(request("x", provider={"only": ["nobody"]}))
        return reply, at_last_byte, (bad.status, unknown.status)

    reply, at_last_byte, statuses = play(kimi, vocabulary, Scenario(faults={}), script, ledger=path)
    assert [line["step"] for line in at_last_byte][:2] == ["received", "answered"]
    lines = lines_of(path)
    assert [(line["step"], line["number"]) for line in lines] == [
        (step, number) for number in range(3) for step in ("received", "answered", "ended")
    ]
    received, answered, ended = lines[:3]
    assert received["body_sha256"] == hashlib.sha256(json.dumps(request("x")).encode()).hexdigest()
    assert (answered["id"], answered["provider"], answered["cost_usd"]) == (
        reply["id"],
        reply["provider"],
        reply["usage"]["cost"],
    )
    assert answered["completion_tokens"] == reply["usage"]["completion_tokens"]
    assert (answered["billed"], ended["delivered"]) == (True, True)
    assert received["received"] <= answered["answered"] <= ended["ended"]
    assert statuses == (400, 404) == (lines[4]["status"], lines[7]["status"])
    assert (lines[3]["identity"], lines[4]["billed"], lines[7]["billed"]) == ("", False, False)


def test_what_is_lost_in_flight_is_billed_and_said(kimi: Contract, vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    async def script(client: Client) -> Any:
        kept = await client.post(request("kept"))
        await client.hang_up(request("lost"))
        open_ = (await client.get("/_ledger")).json["totals"]["open"]
        await client.all_ended()
        return kept.json["usage"]["cost"], open_, (await client.get("/_ledger")).json

    cost, open_, ledger = play(kimi, vocabulary, Scenario(latency_s=(0.4, 0.4)), script, ledger=path)
    totals = ledger["totals"]
    assert (open_, totals["open"], totals["requests"], totals["billed"], totals["billed_lost"]) == (1, 0, 2, 2, 1)
    kept, lost = ledger["entries"]
    assert totals["cost_usd"] == pytest.approx(cost + lost["cost_usd"])
    assert (kept["delivered"], lost["delivered"], lost["billed"]) == (True, False, True)
    assert lost["output_ids"] is None
    assert [line["delivered"] for line in lines_of(path) if line["step"] == "ended"] == [True, False]
    assert ledger["account"]["spent_usd"] == pytest.approx(totals["cost_usd"])


def test_books_go_on_in_the_same_file(kimi: Contract, vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    async def script(client: Client) -> Any:
        return (await client.post(request("x"))).status, (await client.get("/_ledger?ids=1")).json

    for _ in range(2):
        status, ledger = play(kimi, vocabulary, Scenario(), script, ledger=path)
        assert status == 200
        assert ledger["entries"][0]["output_ids"][-1] == kimi.id_of("<|im_end|>")
    assert len(lines_of(path)) == 6


def test_prompts_of_ids_have_a_key_of_their_own(kimi: Contract, vocabulary: Vocabulary) -> None:
    async def script(client: Client) -> Any:
        await client.post({"input_ids": [1, 2, 3]}, "/generate")
        return client.simulation.ledger.entries[0]

    entry = play(kimi, vocabulary, Scenario(), script)
    assert entry.identity == prompt_ids_key((1, 2, 3)) == hashlib.sha256(b"[1,2,3]").hexdigest()
    assert (entry.face, entry.prompt_tokens, entry.completion_tokens) == ("sglang", 3, 128)


def test_a_ledger_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        Ledger(tmp_path / "missing" / "ledger.jsonl")
