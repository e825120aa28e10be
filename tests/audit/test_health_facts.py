"""Text health of whole rows: through the kernel, over innocent texts, and over faulty ones."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from toolkit.audit.blocks import block_of_lists
from toolkit.audit.health.facts import HEALTH_READS, health_facts
from toolkit.audit.measure import measure
from toolkit.columns import HEALTH_COLUMNS, SHARD_SCHEMA
from toolkit.contract import Contract
from toolkit.phrases import SHIPPED, Phrases
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary

from .health_texts import INNOCENT, prose
from .shard_rows import SHA, row, table

NAMES = [column.name for column in HEALTH_COLUMNS]
LARGEST_LOOP_SHARE, LONGEST_LOOP, LARGEST_REPEATED_SHARE = 0.25, 320, 0.98
"""The thresholds of the shipped suites."""


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def health_of(
    rows: list[dict[str, Any]], vocabulary: Vocabulary, phrases: Phrases | None = SHIPPED
) -> list[dict[str, Any]]:
    """Health facts of rows, through the kernel."""
    facts = measure(table(rows), vocabulary.contract, vocabulary, shard_sha256=SHA, phrases=phrases)
    return facts.select(NAMES).to_pylist()


def facts_of_texts(texts: list[str], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Health facts of answers without thoughts."""
    ids = pa.array([vocabulary.encode_ordinary(text) for text in texts], pa.list_(pa.int32()))
    columns = {name: pa.nulls(len(texts), SHARD_SCHEMA.field(name).type) for name in HEALTH_READS}
    columns["content"] = pa.array(texts, pa.string())
    facts = health_facts(columns, block_of_lists(ids), np.ones(len(texts), dtype=bool), SHIPPED)
    return pa.table(facts).to_pylist()


def is_repetition(facts: dict[str, Any], ids: int) -> bool:
    """Whether one of the shipped suites' expectations about repetition fails."""
    grams = ids >= 1024 and facts["repeated_share"] > LARGEST_REPEATED_SHARE
    return grams or facts["loop_share"] > LARGEST_LOOP_SHARE or facts["loop_ids"] > LONGEST_LOOP


@pytest.mark.parametrize("kind", INNOCENT)
def test_innocent_texts_are_not_told(kind: str, vocabulary: Vocabulary) -> None:
    texts = [INNOCENT[kind](random.Random(seed)) for seed in range(20)]
    for text, facts in zip(texts, facts_of_texts(texts, vocabulary), strict=True):
        assert not is_repetition(facts, len(vocabulary.encode_ordinary(text))), facts
        told = {name: facts[name] for name in ("refusal", "boilerplate", "language_differs") if facts[name]}
        counts = {name: facts[name] for name in ("n_control_chars", "n_secrets", "n_email_addresses") if facts[name]}
        assert (told, counts) == ({}, {}), text[:200]


@pytest.mark.parametrize(
    "text",
    [
        " Let me think again." * 400,
        prose(random.Random(1)) + " So the answer is 4.\n" * 100,
        "a" * 2_000,
        "ha" * 500,
        "好" * 500,
        "这是一个问题。" * 200,
        "Wait, no. " * 100,
        (prose(random.Random(2))[:400] + "\n") * 80,
        "0, " * 500,
        "<br>\n" * 300,
    ],
)
def test_repetition_until_the_cap_is_told(text: str, vocabulary: Vocabulary) -> None:
    (facts,) = facts_of_texts([text], vocabulary)
    assert is_repetition(facts, len(vocabulary.encode_ordinary(text))), facts


def test_facts_of_a_row(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    thoughts = "The user asks for a greeting, which is easy enough."
    content = "Hello\x1b[31m there, mail jane@acme-corp.com with AKIA2QWERTYUIOP7ASDF soon\u202e."
    (facts,) = health_of([row(builder, {"reasoning": thoughts, "content": content})], vocabulary)
    hashes = {facts.pop("answer_hash"), facts.pop("prompt_hash")}
    assert facts == {
        "repeated_share": 0.0,
        "loop_ids": 0,
        "loop_period": None,
        "loop_share": 0.0,
        "n_control_chars": 1,
        "n_bidi_chars": 1,
        "lone_surrogates": False,
        "reasoning_script": "latin",
        "script": "latin",
        "second_script_share": 0.0,
        "language_differs": False,
        "refusal": False,
        "boilerplate": False,
        "n_secrets": 1,
        "secret_kinds": "aws",
        "n_email_addresses": 1,
    }
    assert None not in hashes


def test_the_secret_itself_is_nowhere_in_the_facts(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    rows = [row(builder, {"content": "It is AKIA2QWERTYUIOP7ASDF, mind you."}, mode="instant")]
    facts = measure(table(rows), vocabulary.contract, vocabulary, shard_sha256=SHA)
    assert facts["n_secrets"].to_pylist() == [1]
    assert "QWERTYUIOP" not in str(facts.to_pylist())


def test_switched_off_every_fact_is_null(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    rows = [row(builder, {"reasoning": "Hm.", "content": "Hello there."})]
    assert health_of(rows, vocabulary, None) == [dict.fromkeys(NAMES)]
    on = measure(table(rows), vocabulary.contract, vocabulary, shard_sha256=SHA)
    off = measure(table(rows), vocabulary.contract, vocabulary, shard_sha256=SHA, phrases=None)
    assert off.drop_columns(NAMES).equals(on.drop_columns(NAMES))
    assert off.schema.equals(on.schema)


def test_an_empty_answer(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    (facts,) = health_of([row(builder, {"content": None}, mode="instant")], vocabulary)
    assert facts["refusal"] is None
    assert facts["answer_hash"] is None
    assert (facts["n_control_chars"], facts["n_secrets"], facts["boilerplate"]) == (0, 0, False)


def test_half_a_surrogate_pair_is_known_by_its_note(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    rows = [row(builder, {"content": text}, mode="instant") for text in ("bad \ud83d end", "good")]
    assert [facts["lone_surrogates"] for facts in health_of(rows, vocabulary)] == [True, False]


def test_a_refusal_and_an_own_phrase(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    texts = ("I'm sorry, but I can't help with that.", "Brought to you by ACME.", "Fine.")
    rows = [row(builder, {"content": text}, mode="instant") for text in texts]
    own = Phrases(refusals=SHIPPED.refusals, boilerplate=("brought to you by acme",))
    found = health_of(rows, vocabulary, own)
    assert [facts["refusal"] for facts in found] == [True, False, False]
    assert [facts["boilerplate"] for facts in found] == [False, True, False]


def test_hashes_are_those_of_the_words(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    hi, ho = ([{"role": "user", "content": text}] for text in ("hi", "ho"))
    rows = [
        row(builder, {"reasoning": "ab", "content": "c"}, messages=hi),
        row(builder, {"reasoning": "ab", "content": "c"}, messages=ho),
        row(builder, {"reasoning": "a", "content": "bc"}, messages=hi, tools=[{"type": "function"}]),
        row(builder, {"reasoning": "ab", "content": "c"}, messages=None),
    ]
    answers, prompts = zip(*((f["answer_hash"], f["prompt_hash"]) for f in health_of(rows, vocabulary)), strict=True)
    assert answers[0] == answers[1] == answers[3] != answers[2]
    assert len(set(prompts)) == 4
    assert prompts[3] is None
    # The same on every machine and in every version, or kept facts would not fit new ones.
    digest = hashlib.blake2b(b"2:1:0:ab:c:", digest_size=8).digest()
    assert answers[0] == int.from_bytes(digest, "little", signed=True) == -1495582002536564014


def test_rows_are_measured_alike_in_any_company(builder: RowBuilder, vocabulary: Vocabulary) -> None:
    rows = [row(builder, {"reasoning": "So.", "content": INNOCENT[kind](random.Random(1))}) for kind in INNOCENT]
    together = health_of(rows, vocabulary)
    assert together == [health_of([one], vocabulary)[0] for one in rows]
    assert (
        measure(table(rows).slice(3, 5), vocabulary.contract, vocabulary, shard_sha256=SHA).select(NAMES).to_pylist()
        == together[3:8]
    )
