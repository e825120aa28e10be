"""The published schema is the types', and tells a verdict from what is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.report.builder import (
    HOSTILE,
    failing_verdict,
    hostile_verdict,
    incomplete_verdict,
    learned,
    passing_verdict,
)
from toolkit.errors import ConfigError
from toolkit.records import VERDICT_VERSION, Verdict
from toolkit.schemas import NAMES, make_schema, read_schema

VALIDATOR = jsonschema_rs.validator_for(json.loads(read_schema("verdict")))


def as_json(verdict: Verdict) -> Any:
    return json.loads(msgspec.json.encode(verdict))


@pytest.mark.parametrize("name", NAMES)
def test_the_published_schema_is_current(name: str) -> None:
    assert read_schema(name) == make_schema(name), "run scripts/schemas.py"


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_is_one(name: str) -> None:
    assert jsonschema_rs.meta.is_valid(json.loads(read_schema(name)))


def test_it_names_its_version() -> None:
    schema = json.loads(read_schema("verdict"))
    assert schema["$id"] == f"urn:tokenproof:verdict:{VERDICT_VERSION}"
    assert schema["properties"]["version"] == {"const": VERDICT_VERSION}
    assert schema["properties"]["prompts_sha256"]["description"].startswith("Of prompts.jsonl as it was audited")


@pytest.mark.parametrize("verdict", [passing_verdict(), failing_verdict(), incomplete_verdict()])
def test_every_verdict_validates(verdict: Verdict) -> None:
    assert VALIDATOR.is_valid(as_json(verdict))
    assert VALIDATOR.is_valid(as_json(failing_verdict(learned=learned())))


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\ud800" not in text])
def test_whatever_a_server_says_a_verdict_validates(text: str) -> None:
    verdict = hostile_verdict(text)
    first = tuple(
        replace(run, results=tuple(replace(result, examples=result.examples[:1]) for result in run.results))
        for run in verdict.suites
    )
    assert VALIDATOR.is_valid(as_json(replace(verdict, suites=first)))


def spoil(*path: str | int, value: Any) -> Callable[[Any], None]:
    def apply(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return apply


def without(name: str) -> Callable[[Any], None]:
    return lambda document: document.pop(name)


@pytest.mark.parametrize(
    "spoiled",
    [
        spoil("rows", value="3383"),
        spoil("rows", value=3.5),
        spoil("passed", value="yes"),
        spoil("passed", value=None),
        spoil("version", value=VERDICT_VERSION + 1),
        spoil("shards", 0, "sha256", value=7),
        spoil("suites", 0, "results", 0, "severity", value="fatal"),
        spoil("suites", 0, "results", 0, "mostly", value="all"),
        spoil("suites", 0, "standing", value="borrowed"),
        spoil("providers", 0, "evidence", value={"engine": "all"}),
        spoil("accounting", "missing", value=[["q1", 0]]),
        spoil("learned", "findings", value=[{"code": "x"}]),
        spoil("reasons", value="because"),
        without("version"),
        without("shards"),
        without("quarantine_sha256"),
    ],
)
def test_what_is_no_verdict_does_not(spoiled: Callable[[Any], None]) -> None:
    document = as_json(passing_verdict())
    assert VALIDATOR.is_valid(document)
    spoiled(document)
    assert not VALIDATOR.is_valid(document)


def test_there_is_no_schema_of_anything_else() -> None:
    with pytest.raises(ConfigError, match="schema 'verdicts': expected one of verdict"):
        read_schema("verdicts")
