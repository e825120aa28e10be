"""From what was asked and what came to a row: provenance, prompts, refusals, tool ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.columns import SHARD_SCHEMA
from toolkit.contract import Contract, read_contract
from toolkit.records import Failure, IdsSource, Reply
from toolkit.rows import PAYLOAD_KEYS, RowBuilder, rewrite_tool_ids
from toolkit.vocabulary import Vocabulary

from .audit.shard_rows import MODEL, body, engine_row, entry, row, table

TEXTS = {"reasoning": " because", "content": " yes"}


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def test_a_whole_row(builder: RowBuilder, kimi: Contract, vocabulary: Vocabulary) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "cost": 0.5,
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    made = row(
        builder,
        TEXTS,
        usage=usage,
        head={"id": "gen-1", "created": 5},
        sample_id="q",
        turn=1,
        sample_index=2,
        assumed=("mode",),
        latency_s=1.5,
        request={"model": MODEL},
        received_at=7.0,
    )
    asked = entry("", sample_id="q")
    payload = json.loads(made.pop("payload"))
    assert set(made) | {"payload"} == set(SHARD_SCHEMA.names)
    assert made == {
        "row_key": asked.row_key,
        "sample_id": "q",
        "turn": 1,
        "sample_index": 2,
        "probe": False,
        "source": "openrouter",
        "origin": "generate",
        "provider": "Chutes",
        "model": MODEL,
        "mode": "thinking",
        "contract": "kimi-k2.5",
        "contract_sha256": kimi.sha256,
        "messages": '[{"role":"user","content":"hi"}]',
        "tools": None,
        "reasoning": " because",
        "content": " yes",
        "tool_calls": None,
        "finish_reason": "stop",
        "native_finish_reason": None,
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "reasoning_tokens": 1,
        "cost_usd": 0.5,
        "request_id": "gen-1",
        "created": 5,
        "latency_s": 1.5,
        "streamed": False,
        "output_ids": [*vocabulary.encode_ordinary(" because"), 163607, *vocabulary.encode_ordinary(" yes"), 163586],
        "ids_source": "rebuilt",
        "prompt_ids": vocabulary.encode_rendered(
            "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
        ),
        "prompt_ids_source": "rendered",
        "rebuild_status": "complete",
        "notes": ["mode_assumed"],
    }
    assert set(payload) == set(PAYLOAD_KEYS)
    assert json.loads(payload["body"])["choices"][0]["message"] == TEXTS
    assert (payload["request"], payload["received_at"], payload["ids_are"]) == ({"model": MODEL}, 7.0, "given")


# (model that the reply names, model that was asked for, model of the row or None where it is refused)
MODELS: list[tuple[str | None, str | None, str | None]] = [
    (MODEL, MODEL, MODEL),
    ("moonshotai/kimi-k2.5-0127", MODEL, "moonshotai/kimi-k2.5-0127"),
    (None, MODEL, MODEL),
    (None, None, None),
    ("moonshotai/kimi-k2", MODEL, None),
    ("openai/gpt-4o", MODEL, None),
    (None, "openai/gpt-4o", None),
    ("", MODEL, None),
]


@pytest.mark.parametrize(("answered", "asked", "model"), MODELS)
def test_models(builder: RowBuilder, answered: str | None, asked: str | None, model: str | None) -> None:
    given = entry(body(TEXTS, provider="P", usage={"cost": 0.5}, model=answered), model=asked)
    reply = builder.read(given, where="endpoint")
    if model is None and (answered, asked) != (None, None):
        assert isinstance(reply, Failure)
        assert (reply.reason, reply.final, reply.provider, reply.cost_usd) == ("model_mismatch", True, "P", 0.5)
        assert reply.body == given.body
    else:
        assert isinstance(reply, Reply)
        assert builder.build(given, reply)["model"] == model


def test_no_answer_is_a_failure_with_its_body(builder: RowBuilder) -> None:
    text = json.dumps({"error": {"code": 429, "message": "slow \ud800", "metadata": {"provider_name": "P"}}})
    failure = builder.read(entry(text, sample_id="a"), where="here")
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.final, failure.provider, failure.status) == ("http_429", False, "P", 429)
    assert (failure.where, failure.sample_id, failure.body) == ("here", "a", text)
    assert "slow \ufffd" in failure.detail


@pytest.mark.parametrize(("ids_are", "source"), [(IdsSource.ENGINE, "engine"), (IdsSource.GIVEN, "given")])
def test_what_ids_are_taken_for_is_said_by_whom_brings_them(
    builder: RowBuilder, ids_are: IdsSource, source: str
) -> None:
    for kind in ("openai", "raw"):
        text = body(TEXTS, choice={"token_ids": [5, 163586]})
        if kind == "raw":
            text = json.dumps({"sample_id": "s", "output_ids": [5, 163586], "finish_reason": "stop"})
        asked = entry(text, form=kind, ids_are=ids_are)
        reply = builder.read(asked, where="")
        assert isinstance(reply, Reply)
        made = builder.build(asked, reply)
        assert (made["output_ids"], made["ids_source"]) == ([5, 163586], source)


def test_null_ids_fall_back_to_the_text(builder: RowBuilder) -> None:
    """Case 30."""
    made = engine_row(builder, TEXTS, None)
    assert (made["ids_source"], made["notes"]) == ("rebuilt", ["ids_null"])


# (mode, prompt ids that came, prompt ids of the row, their source, notes); "rendered" stands for what we render
PROMPT_IDS: list[tuple[str, Any, Any, str | None, list[str]]] = [
    ("thinking", [5, 163606], [5, 163606], "given", []),
    ("instant", [5, 163606, 163607], [5, 163606, 163607], "given", []),
    ("thinking", [-5, 163606], None, None, ["prompt_ids_invalid"]),
    ("thinking", [163840, 163606], None, None, ["prompt_ids_invalid"]),
    # Case 24: the prompt's tail against the row's own mode.
    ("thinking", [5, 163606, 163607], None, None, ["prompt_tail"]),
    ("instant", [5, 163606], None, None, ["prompt_tail"]),
    ("thinking", [5, 6], None, None, ["prompt_tail"]),
    ("instant", [163607], None, None, ["prompt_tail"]),
    ("thinking", None, "rendered", "rendered", []),
    ("thinking", [], "rendered", "rendered", []),
    ("thinking", [True], "rendered", "rendered", ["wrong_type:prompt_token_ids"]),
]


@pytest.mark.parametrize(("mode", "came", "ids", "source", "notes"), PROMPT_IDS)
def test_prompt_ids(builder: RowBuilder, mode: str, came: Any, ids: Any, source: str | None, notes: list[str]) -> None:
    message = TEXTS if mode == "thinking" else {"content": "yes"}
    # Ids of a file stand for the prompt only where the messages are not known.
    known: dict[str, Any] = {} if ids == "rendered" else {"messages": None}
    made = row(builder, message, mode=mode, head={"prompt_token_ids": came}, **known)
    rendered = row(builder, message, mode=mode)["prompt_ids"]
    assert made["prompt_ids"] == (rendered if ids == "rendered" else ids)
    assert (made["prompt_ids_source"], made["notes"]) == (source, notes)


def test_what_we_render_stands_before_prompt_ids_that_no_engine_gave(builder: RowBuilder) -> None:
    made = row(builder, TEXTS, head={"prompt_token_ids": [5, 163606]})
    assert made["prompt_ids"] == row(builder, TEXTS)["prompt_ids"]
    assert made["prompt_ids_source"] == "rendered"


@pytest.mark.parametrize(
    ("messages", "note"),
    [
        (None, "prompt_unknown"),
        ([{"role": "user", "content": 5}], "prompt_not_rendered"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "prompt_has_media"),
    ],
)
def test_prompts_that_are_not_rendered(builder: RowBuilder, messages: Any, note: str) -> None:
    made = row(builder, TEXTS, messages=messages)
    assert (made["prompt_ids"], made["prompt_ids_source"], made["notes"]) == (None, None, [note])


def test_whatever_a_server_sends_can_be_written(builder: RowBuilder) -> None:
    """Lone surrogates, huge numbers, markup: every row fits the schema."""
    odd = "\ud800<script>\x1b[31m\x00"
    rows = [
        row(
            builder, {"reasoning": odd, "content": odd}, odd, head={"id": odd, "provider": odd}, usage={"cost": 10**400}
        ),
        row(builder, {**TEXTS, "tool_calls": [{"id": odd, "function": {"name": odd, "arguments": odd}}]}, "stop"),
        row(builder, TEXTS, "stop", usage={"completion_tokens": 10**400}, head={"created": 10**400}),
    ]
    found = table(rows).to_pylist()
    assert found[0]["reasoning"] == odd.replace("\ud800", "\ufffd")
    assert [f["output_ids"] is None for f in found] == [True, True, False]
    assert found[0]["notes"] == ["wrong_type:cost", "lone_surrogate"]


# --- tool ids of a history -------------------------------------------------------------------------


def calls(*ids_and_names: tuple[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in ids_and_names
        ],
    }


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


USER = {"role": "user", "content": "hi"}

# (what, history, history as sent, old → new)
HISTORIES: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]], dict[str, str]]] = [
    ("no calls", [USER], [USER], {}),
    (
        "foreign ids (case 20)",
        [USER, calls(("call_9f3a", "find")), result("call_9f3a")],
        [USER, calls(("functions.find:0", "find")), result("functions.find:0")],
        {"call_9f3a": "functions.find:0"},
    ),
    (
        "the index counts over the conversation",
        [calls(("a", "find"), ("b", "get")), result("b"), result("a"), USER, calls(("c", "find")), result("c")],
        [
            calls(("functions.find:0", "find"), ("functions.get:1", "get")),
            result("functions.get:1"),
            result("functions.find:0"),
            USER,
            calls(("functions.find:2", "find")),
            result("functions.find:2"),
        ],
        {"a": "functions.find:0", "b": "functions.get:1", "c": "functions.find:2"},
    ),
    (
        "own ids stay",
        [calls(("functions.find:0", "find")), result("functions.find:0")],
        [calls(("functions.find:0", "find")), result("functions.find:0")],
        {},
    ),
    (
        "an id of another name is foreign",
        [calls(("functions.get:0", "find")), result("functions.get:0")],
        [calls(("functions.find:0", "find")), result("functions.find:0")],
        {"functions.get:0": "functions.find:0"},
    ),
    (
        "the same foreign id in two turns",
        [calls(("x", "f")), result("x"), calls(("x", "f")), result("x")],
        [
            calls(("functions.f:0", "f")),
            result("functions.f:0"),
            calls(("functions.f:1", "f")),
            result("functions.f:1"),
        ],
        {"x": "functions.f:1"},
    ),
    ("a result without a call stays", [result("y")], [result("y")], {}),
]


@pytest.mark.parametrize(("history", "sent", "changed"), [h[1:] for h in HISTORIES], ids=[h[0] for h in HISTORIES])
def test_tool_ids_of_a_history(
    kimi: Contract, history: list[dict[str, Any]], sent: list[dict[str, Any]], changed: dict[str, str]
) -> None:
    before = json.dumps(history)
    assert rewrite_tool_ids(history, kimi) == (sent, changed)
    assert json.dumps(history) == before
    assert rewrite_tool_ids(sent, kimi) == (sent, {})


def test_a_contract_without_tools_rewrites_nothing() -> None:
    history = [calls(("x", "f")), result("x")]
    assert rewrite_tool_ids(history, read_contract("gpt-oss")) == (history, {})


def test_a_new_id_is_never_that_of_another_call(kimi: Contract) -> None:
    history = [calls(("functions.f:1", "f")), result("functions.f:1"), calls(("x", "f")), result("x")]
    sent, _ = rewrite_tool_ids(history, kimi)
    ids = [call["id"] for message in sent for call in message.get("tool_calls", [])]
    assert len(set(ids)) == 2
    assert sent[3]["tool_call_id"] == ids[1]
