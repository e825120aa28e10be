"""Scenario files: read strictly, every key documented, the shipped ones play."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import ROOT
from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.simulate.account import AccountSettings
from toolkit.simulate.behaviours import BEHAVIOURS
from toolkit.simulate.limits import Limit
from toolkit.simulate.providers import PROVIDERS, SimulatedProvider
from toolkit.simulate.scenario import Scenario
from toolkit.simulate.scenario_file import parse_scenario, read_scenario, shipped_scenarios
from toolkit.vocabulary import Vocabulary

from .client import Client, play, request

FULL = b"""
seed = 3
latency_s = [0, 0.5]
engine = "sglang"
canned_bytes = 2048

[faults]
http_429 = 0.1
blank_lines = 1

[limit]
per_s = 50
in_flight = 9

[account]
credits_usd = 2
management_key = "boss"

[[providers]]
slug = "inceptron"
share = 2

[[providers]]
name = "New"
slug = "new"
supported_parameters = ["max_tokens", "seed"]
native_finish = { stop = "eos" }
latency_s = [1, 2]

[providers.limit]
per_s = 1

[providers.faults]
http_502 = 0.5
"""


def test_a_file_is_a_scenario() -> None:
    scenario = parse_scenario(FULL, "s.toml")
    inceptron = next(provider for provider in PROVIDERS if provider.slug == "inceptron")
    assert scenario == Scenario(
        seed=3,
        latency_s=(0.0, 0.5),
        engine="sglang",
        canned_bytes=2048,
        faults={"http_429": 0.1, "blank_lines": 1.0},
        limit=Limit(per_s=50, in_flight=9),
        account=AccountSettings(credits_usd=2.0, management_key="boss"),
        providers=(
            dataclasses.replace(inceptron, share=2.0),
            SimulatedProvider(
                name="New",
                slug="new",
                supported_parameters=frozenset({"max_tokens", "seed"}),
                native_finish={"stop": "eos"},
                latency_s=(1.0, 2.0),
                limit=Limit(per_s=1.0),
                faults={"http_502": 0.5},
            ),
        ),
    )
    assert parse_scenario(b"", "s.toml") == Scenario()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"seed = ", "not TOML"),
        (b"\xff", "not TOML"),
        (b"sede = 1", "unknown key 'sede'"),
        (b'seed = "1"', "seed: expected `int`"),
        (b"seed = 1.5", "seed"),
        (b'engine = "tgi"', "engine"),
        (b"latency_s = [1]", "latency_s"),
        (b"latency_s = [2, 1]", "latency_s"),
        (b"limit = 5", "limit: expected a table"),
        (b"[limit]\nper_m = 5", "limit: unknown key 'per_m'"),
        (b"[limit]\nper_s = -5", "limit.per_s"),
        (b"[faults]\nhttp_999 = 0.1", "http_999"),
        (b'[faults]\nhttp_429 = "0.1"', "faults"),
        (b"[faults]\nhttp_429 = 1.5", "http_429"),
        (b"[account]\ncredits_usd = -1", "credits_usd"),
        (b"providers = 5", "providers: expected an array"),
        (b"providers = [5]", "providers[0]: expected a table"),
        (b'[[providers]]\nslug = "new"', "expected the key name"),
        (b'[[providers]]\nslug = "new"\nname = "N"\nlimits = 4', "unknown key 'limits'"),
        (b'[[providers]]\nslug = "new"\nname = "N"\nfaults = { nope = 1 }', "nope"),
        (b'[[providers]]\nslug = "new"\nname = "N"\ncounts = "some"', "counts"),
        (b"canned_bytes = 5", "canned_bytes"),
    ],
)
def test_faulty_files_are_refused_by_name(content: bytes, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)) as raised:
        parse_scenario(content, "s.toml")
    assert str(raised.value).startswith("s.toml: ")


def test_scenarios_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"seed = 8")
    assert read_scenario(str(path)).seed == 8
    with pytest.raises(ConfigError, match="expected one of chaos, fast, storm"):
        read_scenario("nope")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_scenario(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_answer_everything_in_the_end(kimi: Contract, vocabulary: Vocabulary, name: str) -> None:
    async def ask(client: Client, i: int) -> int:
        for attempt in range(60):
            with contextlib.suppress(aiohttp.ClientError, ValueError, KeyError, TypeError, IndexError):
                got = await client.post(request(str(i)))
                if got.json["choices"][0]["finish_reason"] in ("stop", "length"):
                    return attempt
            await asyncio.sleep(0.02)
        raise AssertionError(f"no answer to {i}")

    async def script(client: Client) -> Any:
        tries = await asyncio.gather(*(ask(client, i) for i in range(60)))
        return tries, client.simulation.ledger.entries

    scenario = dataclasses.replace(read_scenario(name), latency_s=(0.0, 0.0))
    tries, entries = play(kimi, vocabulary, scenario, script)
    assert sum(entry.billed for entry in entries) == 60
    assert (sum(tries) > 0) == (name == "chaos")


def test_the_document_names_every_key_and_every_behaviour() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z0-9_]+)` \|", text, re.MULTILINE))
    keys = {f.name for kind in (Scenario, SimulatedProvider, Limit, AccountSettings) for f in dataclasses.fields(kind)}
    assert keys | set(BEHAVIOURS) == rows
    for behaviour in BEHAVIOURS.values():
        assert f"| {behaviour.plays} |" in text
