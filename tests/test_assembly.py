"""Many replies rebuilt together are the same replies rebuilt one by one, whatever stands in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.assembly import assemble, encode_together, packed, packed_id, unpacked
from toolkit.columns import SHARD_SCHEMA
from toolkit.contract import Contract
from toolkit.rebuild import plan_rebuild, rebuild
from toolkit.records import Ask, IdsSource, Reply, ToolCall
from toolkit.rows import RowBuilder
from toolkit.store.journal import spelled
from toolkit.store.shard_writer import gathered
from toolkit.vocabulary import Vocabulary

from .audit.shard_rows import body, entry

TEXTS = st.lists(
    st.sampled_from([
        "a", " the", "\n\n", "日本", "🙂‍↔️", "'\u017f", "<think>", "</think>", "<|im_end|>", "[EOS]", "\ud800", "12345",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ]),
    max_size=6,
).map("".join)  # fmt: skip
CALLS = st.lists(
    st.builds(ToolCall, id=st.sampled_from(["functions.f:0", "functions.f:1", "call_9"]), name=st.just("f"),
              arguments=st.none() | st.sampled_from(["{}", '{"a": "\u017f"}'])),
    max_size=2,
).map(tuple)  # fmt: skip
REPLIES = st.builds(
    Reply,
    reasoning=st.none() | TEXTS,
    content=st.none() | TEXTS,
    tool_calls=CALLS,
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", None]),
    completion_tokens=st.none() | st.integers(0, 12),
    output_ids=st.none() | st.lists(st.integers(0, 163_839), max_size=3),
    ids_source=st.sampled_from([IdsSource.ENGINE, IdsSource.GIVEN]),
)
ASKS = st.builds(Ask, mode=st.sampled_from(["thinking", "instant"]), max_tokens=st.none() | st.just(5))


@given(asked=st.lists(st.tuples(REPLIES, ASKS), max_size=6))
@settings(max_examples=300, deadline=None)
def test_together_is_one_by_one(kimi: Contract, vocabulary: Vocabulary, asked: list[tuple[Reply, Ask]]) -> None:
    plans = [plan_rebuild(reply, ask, kimi, vocabulary) for reply, ask in asked]
    # By the engine's lists here, one after the other; packed there.
    outputs = encode_together(
        [plan.stretches for plan in plans], lambda texts: [packed(vocabulary.encode_ordinary(text)) for text in texts]
    )
    together = [*map(assemble, plans, outputs)]
    for made, (reply, ask) in zip(together, asked, strict=True):
        alone = rebuild(reply, ask, kimi, vocabulary)
        assert (made.ids, made.source, made.status, made.notes) == (alone.ids, alone.source, alone.status, alone.notes)
        assert (made.reasoning, made.content, made.tool_calls) == (alone.reasoning, alone.content, alone.tool_calls)


@given(reasoning=TEXTS, content=TEXTS)
@settings(max_examples=200, deadline=None)
def test_ids_are_those_of_each_text_with_the_contracts_between(
    kimi: Contract, vocabulary: Vocabulary, reasoning: str, content: str
) -> None:
    """The layout said a second time, over lists, by the referee."""
    reply = Reply(reasoning=reasoning, content=content, finish_reason="stop")
    rebuilt = rebuild(reply, Ask(mode="thinking"), kimi, vocabulary)
    if rebuilt.ids is None or rebuilt.notes or not (reasoning and content):
        return
    encode = vocabulary.referee.encode
    assert rebuilt.ids == [*encode(reasoning), 163607, *encode(content), 163586]
    assert isinstance(rebuilt.output, bytes)
    assert len(rebuilt.output) == 4 * len(rebuilt.ids)


def test_ids_of_an_engine_cost_no_encoding(kimi: Contract, vocabulary: Vocabulary) -> None:
    reply = Reply(reasoning="a", content="b", finish_reason="stop", output_ids=[5], ids_source=IdsSource.ENGINE)
    assert plan_rebuild(reply, Ask(mode="thinking"), kimi, vocabulary).stretches is None


def test_rows_together_are_the_rows_one_by_one(kimi: Contract, vocabulary: Vocabulary) -> None:
    builder = RowBuilder(kimi, vocabulary)
    bodies: list[str] = [
        body({"reasoning": " so", "content": " yes"}),
        body({"reasoning": None, "content": ""}),
        body({"reasoning": "x", "content": "it'\u017f"}, "length"),
        body({"reasoning": "\ud800", "content": "y"}),
        json.dumps({"sample_id": "s", "output_ids": [5, 163586], "finish_reason": "stop"}),
    ]
    answers: list[Any] = []
    for text in bodies:
        asked = entry(text, form="raw" if "sample_id" in text else "openai")
        answers.append((asked, builder.read(asked, where="")))
    together = builder.build_all(answers)
    alone = [builder.build(*answer) for answer in answers]
    assert [row["rebuild_status"] for row in alone][:3] == ["complete", "answer_missing", "truncated"]
    (batch,) = gathered([together])
    assert pa.Table.from_batches([batch]).to_pylist() == pa.Table.from_pylist(alone, schema=SHARD_SCHEMA).to_pylist()
    assert list(gathered([builder.build_all([])])) == []


def test_a_text_that_many_prompts_share_is_encoded_once(
    kimi: Contract, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = vocabulary.encode_packed, list[str]()

    def encode(texts: Sequence[str]) -> list[bytes]:
        seen.extend(texts)
        return real(texts)

    builder = RowBuilder(kimi, vocabulary)
    system = {"role": "system", "content": "Be brief, whatever comes, and never say why." * 3}
    asked = [entry(body({"reasoning": "a", "content": "b"}), messages=[system, {"role": "user", "content": text}])
             for text in ("x", "y", "x")]  # fmt: skip
    answers: list[Any] = [(one, builder.read(one, where="")) for one in asked]
    alone = [packed(builder.build(*answer)["prompt_ids"]) for answer in answers]
    monkeypatch.setattr(vocabulary, "encode_packed", encode)
    assert builder.build_all(answers)["prompt_ids"] == alone
    assert sorted(seen) == sorted([*["a", "b"] * 3, system["content"], "x", "y"])


@pytest.mark.parametrize("sent", [None, {"seed": 2**70}, {"user": "\ud800"}])
def test_a_body_that_is_json_already_changes_no_row(
    kimi: Contract, vocabulary: Vocabulary, sent: dict[str, Any] | None
) -> None:
    builder = RowBuilder(kimi, vocabulary)
    choice = {"finish_reason": "stop", "message": {"content": 'é\x00"\u2028'}}
    text = json.dumps({"model": "moonshotai/kimi-k2.5", "choices": [choice]}, ensure_ascii=False)
    asked = entry(text, form="openai", request=sent)
    answer: Any = (asked, builder.read(asked, where=""))
    plain, spliced = builder.build_all([answer]), builder.build_all([answer], [spelled(text)])
    assert plain == spliced
    assert json.loads(plain["payload"][0])["body"] == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\u017f\ud800"])
def test_lone_surrogates_are_an_error_for_packed_ids_too(vocabulary: Vocabulary, text: str) -> None:
    with pytest.raises(UnicodeEncodeError):
        vocabulary.encode_packed([text])


@given(texts=st.lists(TEXTS.filter(lambda text: "\ud800" not in text), max_size=6))
@settings(max_examples=250, deadline=None)
def test_packed_ids_are_the_referees(vocabulary: Vocabulary, texts: list[str]) -> None:
    found = [unpacked(ids).tolist() for ids in vocabulary.encode_packed(texts)]
    assert found == [vocabulary.referee.encode(text) for text in texts]


@given(ids=st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_packed_ids_are_4_bytes_each(ids: list[int]) -> None:
    assert (unpacked(packed(ids)).tolist(), len(packed(ids))) == (ids, 4 * len(ids))
    assert b"".join(map(packed_id, ids)) == packed(ids)


@pytest.mark.parametrize("wrong", [2**31, -(2**31) - 1, 1.5, "1"])
def test_what_is_no_id_is_not_packed(wrong: Any) -> None:
    with pytest.raises((OverflowError, TypeError)):
        packed([wrong])


@pytest.mark.parametrize("text", ["", " " * 50_000, "a" * 50_000, "中" * 50_000, "<|im_end|>" * 5_000])
def test_packed_ids_of_long_runs(vocabulary: Vocabulary, text: str) -> None:
    (ids,) = vocabulary.encode_packed([text])
    assert unpacked(ids).tolist() == vocabulary.referee.encode(text)


@pytest.mark.parametrize("name", ["kimi-k2.5", "gpt-oss", "glm-4.6", "deepseek-v3"])
def test_specials_are_found_wherever_they_stand(name: str) -> None:
    from toolkit.contract import read_contract
    from toolkit.vocabulary import load_vocabulary

    contract = read_contract(name)
    loaded = load_vocabulary(contract)
    pieces = [*contract.special, *(spelling[:-1] for spelling in contract.special), "<", "[", "</", "x", "日"]

    @given(st.lists(st.sampled_from(pieces), max_size=6).map("".join))
    @settings(max_examples=200, deadline=None)
    def holds(text: str) -> None:
        assert bool(loaded.specials_in(text)) == any(spelling in text for spelling in contract.special)

    holds()
