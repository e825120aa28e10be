"""Conversations for tools that take text, and whether they would train on our ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rows import row
from toolkit.contract import Contract, read_contract
from toolkit.errors import ConfigError
from toolkit.export.conversations import EAGLE_SYSTEM, NotExpressibleError, conversation_of
from toolkit.export.parity import ParityCheck, first_difference
from toolkit.export.readers import Target
from toolkit.export.run import ExportOptions
from toolkit.export.text_run import export_text
from toolkit.export.train_set import open_train_set
from toolkit.prompt import PromptRenderer
from toolkit.vocabulary import Vocabulary

from .train_sets import bytes_of, train_rows, train_set

END_THINK, TERMINAL = 163607, 163586


def texts(**changes: Any) -> dict[str, Any]:
    messages = json.dumps([{"role": "user", "content": "Hi"}])
    return {
        "messages": messages, "tools": None, "reasoning": " so", "content": " yes", "tool_calls": None,
        "finish_reason": "stop",
    } | changes  # fmt: skip


CALLS = '[{"id":"functions.f:0","name":"f","arguments":"{\\"a\\":  1}"}]'
TOOLS = '[{"type":"function","function":{"name":"f"}}]'


@pytest.mark.parametrize("calls", ["[1]", "{}", "nonsense"])
def test_calls_that_are_none_are_a_reason_and_no_crash(calls: str) -> None:
    with pytest.raises(NotExpressibleError, match="not_json"):
        conversation_of(Target.MODEL_OPTIMIZER, "x", texts(tool_calls=calls))


def test_model_optimizer_gets_chat_messages_with_arguments_as_received() -> None:
    made = conversation_of(Target.MODEL_OPTIMIZER, "B3/a/0/0", texts(tool_calls=CALLS, tools=TOOLS))
    assert made.line == {
        "conversation_id": "B3/a/0/0",
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": " yes",
                "reasoning_content": " so",
                "tool_calls": [
                    {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}}
                ],
            },
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }


def test_eagle_gets_strict_turns_with_the_thoughts_in_the_text() -> None:
    made = conversation_of(Target.EAGLE, "x", texts())
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "<think> so</think> yes"}]
    assert made.line == {"id": "x", "conversations": turns}
    assert made.messages[0] == {"role": "system", "content": EAGLE_SYSTEM}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"messages": None}, "no_messages"),
        ({"content": None, "reasoning": None}, "no_text"),
        ({"finish_reason": "length"}, "cut"),
        ({"messages": "{}"}, "not_json"),
        ({"messages": "[1]"}, "not_json"),
        ({"messages": "["}, "not_json"),
        ({"tools": TOOLS}, "tools"),
        ({"messages": '[{"role":"system","content":"Be brief"},{"role":"user","content":"Hi"}]'}, "role"),
        ({"messages": '[{"role":"user","content":"Hi"},{"role":"user","content":"Hi"}]'}, "not_alternating"),
        ({"messages": '[{"role":"user","content":[{"type":"text","text":"Hi"}]}]'}, "not_plain_text"),
    ],
)
def test_what_eagle_cannot_hold(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotExpressibleError) as raised:
        conversation_of(Target.EAGLE, "x", texts(**changes))
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 2], 2), ([], [1], 0)],
)
def test_first_difference(ours: list[int], theirs: list[int], expected: int | None) -> None:
    assert first_difference(np.array(ours, np.int32), np.array(theirs, np.int64)) == expected


def shard_row(sample_id: str, kimi: Contract, vocabulary: Vocabulary, mode: str, **changes: Any) -> dict[str, Any]:
    """A row as a server would have answered: its prompt rendered, its answer encoded part by part."""
    messages = [{"role": "user", "content": f"Number {sample_id}?"}]
    prompt = PromptRenderer(kimi, vocabulary).render(messages, None, mode).ids
    thoughts = [*vocabulary.encode_ordinary(" so"), END_THINK] if mode == "thinking" else []
    return row(
        sample_id,
        mode=mode,
        messages=json.dumps(messages),
        reasoning=" so" if thoughts else None,
        content=" yes",
        prompt_ids=prompt,
        output_ids=[*thoughts, *vocabulary.encode_ordinary(" yes"), TERMINAL],
        **changes,
    )


def exported(folder: Path, out: Path, target: Target, parity: ParityCheck | None, **options: Any) -> Any:
    return export_text(open_train_set(folder), out, ExportOptions(target=target, **options), parity)


def test_parity_counts_rows_and_shows_the_first_difference(
    tmp_path: Path, kimi: Contract, vocabulary: Vocabulary
) -> None:
    """Kimi's template writes an answer's thoughts out of it: instant rows come back, thinking rows do not."""
    rows = [shard_row(f"i{n}", kimi, vocabulary, "instant") for n in range(3)]
    rows += [shard_row("t", kimi, vocabulary, "thinking")]
    folder = train_set(tmp_path, kimi, rows)
    check = ParityCheck(target=Target.MODEL_OPTIMIZER, contract=kimi, vocabulary=vocabulary)
    report = exported(folder, tmp_path / "out", Target.MODEL_OPTIMIZER, check)
    parity = report.parity
    assert (parity.compared, parity.equal, parity.different, parity.refused) == (4, 3, 1, 0)
    assert parity.equal_share == 0.75
    thinking = next(r for r in train_rows(folder) if r["mode"] == "thinking")
    (first,) = parity.first
    assert (first.id, first.position, first.within) == ("B3/t/0/0", thinking["prompt_len"], "completion")
    assert first.theirs == "163607 '</think>'"
    lines = [json.loads(line) for line in (tmp_path / "out/conversations.jsonl").read_text().splitlines()]
    assert [line["conversation_id"] for line in lines] == [r["id"] for r in train_rows(folder)]
    assert report.reader is None


def test_eagle_and_a_model_that_is_no_llama(tmp_path: Path, kimi: Contract, vocabulary: Vocabulary) -> None:
    rows = [shard_row("a", kimi, vocabulary, "instant"), shard_row("b", kimi, vocabulary, "instant", tools=TOOLS)]
    folder = train_set(tmp_path, kimi, rows)
    check = ParityCheck(target=Target.EAGLE, contract=kimi, vocabulary=vocabulary)
    report = exported(folder, tmp_path / "out", Target.EAGLE, check)
    assert report.left_out["tools"].rows == 1
    assert (report.parity.equal, report.parity.differs_in) == (0, {"prompt": 1})
    assert "Llama-3's headers" in report.parity.note


def test_a_contract_without_a_renderer_compares_nothing(tmp_path: Path, kimi: Contract, vocabulary: Vocabulary) -> None:
    folder = train_set(tmp_path, kimi, [shard_row("a", kimi, vocabulary, "instant")])
    llama = read_contract("llama-3")
    assert llama.prompt.renderer is None
    check = ParityCheck(target=Target.MODEL_OPTIMIZER, contract=llama, vocabulary=vocabulary)
    report = exported(folder, tmp_path / "out", Target.MODEL_OPTIMIZER, check)
    assert (report.parity.refused, report.parity.equal_share) == (1, None)
    assert "names no renderer" in report.parity.note


def test_caps_and_samples_and_the_same_bytes(tmp_path: Path, kimi: Contract, vocabulary: Vocabulary) -> None:
    folder = train_set(tmp_path, kimi, [shard_row(f"i{n}", kimi, vocabulary, "instant") for n in range(5)])
    ids = [r["seq_len"] for r in train_rows(folder)]
    for name in ("one", "two"):
        check = ParityCheck(target=Target.MODEL_OPTIMIZER, contract=kimi, vocabulary=vocabulary, rows=2)
        report = exported(folder, tmp_path / name, Target.MODEL_OPTIMIZER, check, max_ids=sum(ids[:3]))
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    assert (report.written.rows, report.left_out["over_token_cap"].rows, report.parity.compared) == (3, 2, 2)


def test_lengths_of_ours_cannot_hold_for_text(tmp_path: Path, kimi: Contract, vocabulary: Vocabulary) -> None:
    folder = train_set(tmp_path, kimi, [shard_row("a", kimi, vocabulary, "instant")])
    with pytest.raises(ConfigError, match="makes ids of its own"):
        exported(folder, tmp_path / "out", Target.EAGLE, None, max_length=5)
    with pytest.raises(ConfigError, match="needs no conversations"):
        exported(folder, tmp_path / "out", Target.TRL, None)
