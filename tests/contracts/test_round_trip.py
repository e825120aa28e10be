"""From a prompt to a judged row under each shipped contract: what is rendered, what is rebuilt, what the audit says."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tests.audit.shard_rows import SHA, body, table
from toolkit.audit.evidence import judge
from toolkit.audit.measure import measure
from toolkit.prompt import PromptRenderer
from toolkit.records import Entry, IdsSource, Origin, Reply
from toolkit.rows import RowBuilder

from .vocabularies import loaded

SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "e\u0301? <b>"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
DECLARED = '{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}'
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"

QWEN = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ne\u0301? <b><|im_end|>\n<|im_start|>assistant\n"
OLD_GLM = "[gMASK]<sop><|system|>\nBe brief.<|user|>\ne\u0301? <b>"
NEW_GLM = "[gMASK]<sop><|system|>Be brief.<|user|>e\u0301? <b><|assistant|>"

PROMPTS = [
    ("qwen3", "thinking", QWEN),
    ("qwen3", "instant", f"{QWEN}<think>\n\n</think>\n\n"),
    ("glm-4.5", "thinking", f"{OLD_GLM}<|assistant|>"),
    ("glm-4.5", "instant", f"{OLD_GLM}/nothink<|assistant|>\n<think></think>"),
    ("glm-4.6", "thinking", f"{OLD_GLM}<|assistant|>"),
    ("glm-4.6", "instant", f"{OLD_GLM}/nothink<|assistant|>\n<think></think>"),
    ("glm-4.7", "thinking", f"{NEW_GLM}<think>"),
    ("glm-4.7", "instant", f"{NEW_GLM}</think>"),
    ("deepseek-v3", "instant", f"{BOS}Be brief.<｜User｜>e\u0301? <b><｜Assistant｜>"),
    ("deepseek-r1", "thinking", f"{BOS}Be brief.<｜User｜>e\u0301? <b><｜Assistant｜><think>\n"),
]
"""Contract, mode, the prompt as the model's published chat template writes it."""


@lru_cache(maxsize=1)
def renderer(name: str) -> PromptRenderer:
    return PromptRenderer(loaded(name).contract, loaded(name))


@pytest.mark.parametrize(("name", "mode", "text"), PROMPTS)
def test_prompts(name: str, mode: str, text: str) -> None:
    prompt = renderer(name).render([SYSTEM, USER], None, mode)
    assert prompt.notes == ()
    assert prompt.ids == loaded(name).encode_rendered(text)


HISTORY = [
    USER,
    {"role": "assistant", "content": "one", "reasoning_content": "thought"},
    {"role": "user", "content": "two"},
]
LATER = [
    (
        "qwen3",
        "instant",
        (
            "<|im_start|>user\ne\u0301? <b><|im_end|>\n<|im_start|>assistant\none<|im_end|>\n"
            "<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        ),
    ),
    (
        "glm-4.6",
        "thinking",
        "[gMASK]<sop><|user|>\ne\u0301? <b><|assistant|>\n<think></think>\none<|user|>\ntwo<|assistant|>",
    ),
    ("glm-4.7", "thinking", "[gMASK]<sop><|user|>e\u0301? <b><|assistant|></think>one<|user|>two<|assistant|><think>"),
    (
        "deepseek-r1",
        "thinking",
        f"{BOS}<｜User｜>e\u0301? <b><｜Assistant｜>one{EOS}<｜User｜>two<｜Assistant｜><think>\n",
    ),
]


@pytest.mark.parametrize(("name", "mode", "text"), LATER)
def test_earlier_answers_stand_without_their_thoughts(name: str, mode: str, text: str) -> None:
    """Qwen3's template has no empty block in earlier answers, though the renderer's own instant mode would."""
    assert renderer(name).render(HISTORY, None, mode).ids == loaded(name).encode_rendered(text)


@pytest.mark.parametrize("name", ["qwen3", "glm-4.5", "glm-4.7"])
def test_declared_tools(name: str) -> None:
    vocabulary = loaded(name)
    prompt = renderer(name).render([USER], [TOOL], "thinking")
    assert prompt.ids is not None
    assert f"<tools>\n{DECLARED}\n</tools>" in vocabulary.decode_bytes(prompt.ids).decode()


@pytest.mark.parametrize("name", ["llama-3", "gpt-oss"])
def test_prompts_that_bear_a_day_are_not_rendered(name: str) -> None:
    mode = loaded(name).contract.default_mode
    assert renderer(name).render([USER], None, mode).notes == ("prompt_not_rendered",)


# --- replies -------------------------------------------------------------------------------------------

THOUGHTS = {"reasoning": "\nWell, 1 < 2.\n", "content": "\n\nYes: e\u0301."}
ANSWER = {"content": "\nYes: 1 < 2."}
WHOLE = [
    ("qwen3", "thinking", THOUGHTS, "<think>\nWell, 1 < 2.\n</think>\n\nYes: e\u0301.<|im_end|>"),
    ("qwen3", "instant", ANSWER, "\nYes: 1 < 2.<|im_end|>"),
    ("glm-4.5", "thinking", THOUGHTS, "\n<think>\nWell, 1 < 2.\n</think>\n\nYes: e\u0301.<|user|>"),
    ("glm-4.5", "instant", ANSWER, "\nYes: 1 < 2.<|user|>"),
    ("glm-4.6", "thinking", THOUGHTS, "\n<think>\nWell, 1 < 2.\n</think>\n\nYes: e\u0301.<|user|>"),
    ("glm-4.6", "instant", ANSWER, "\nYes: 1 < 2.<|user|>"),
    ("glm-4.7", "thinking", THOUGHTS, "\nWell, 1 < 2.\n</think>\n\nYes: e\u0301.<|user|>"),
    ("glm-4.7", "instant", ANSWER, "\nYes: 1 < 2.<|user|>"),
    ("deepseek-v3", "instant", ANSWER, f"\nYes: 1 < 2.{EOS}"),
    ("deepseek-r1", "thinking", THOUGHTS, f"\nWell, 1 < 2.\n</think>\n\nYes: e\u0301.{EOS}"),
    ("llama-3", "instant", ANSWER, "\nYes: 1 < 2.<|eot_id|>"),
    (
        "gpt-oss",
        "thinking",
        THOUGHTS,
        (
            "<|channel|>analysis<|message|>\nWell, 1 < 2.\n<|end|><|start|>assistant<|channel|>final<|message|>"
            "\n\nYes: e\u0301.<|return|>"
        ),
    ),
]
"""Contract, mode, what a server returns, the whole output."""


def ids_of(name: str, text: str) -> list[int]:
    """Ids of an output: special spellings are ids, and nothing is normalised."""
    vocabulary = loaded(name)
    spelled = [vocabulary.special[spelling] for spelling in vocabulary.specials_in(text)]
    parts = [vocabulary.encode_ordinary(part) for part in vocabulary._split.split(text)]
    ids = [*parts[0]]
    for special, part in zip(spelled, parts[1:], strict=True):
        ids += [special, *part]
    return ids


@lru_cache(maxsize=1)
def builder(name: str) -> RowBuilder:
    return RowBuilder(loaded(name).contract, loaded(name))


def row(
    name: str, mode: str, message: dict[str, Any], finish: str, count: int | None, **changes: Any
) -> dict[str, Any]:
    """The row of one reply, as the tool makes it."""
    contract = loaded(name).contract
    usage = None if count is None else {"completion_tokens": count, "prompt_tokens": changes.pop("prompt_tokens", None)}
    choice = {"token_ids": changes.pop("ids")} if "ids" in changes else {}
    provider = None if choice else "Chutes"
    entry = Entry(
        **{
            "row_key": hashlib.sha256(json.dumps([name, mode, message, finish]).encode()).hexdigest(),
            "sample_id": "s",
            "source": "vllm" if choice else "openrouter",
            "ids_are": IdsSource.ENGINE,
            "origin": Origin.GENERATE,
            "contract": name,
            "mode": mode,
            "model": contract.default_model,
            "form": "openai",
            "body": body(message, finish, usage=usage, choice=choice, provider=provider, model=contract.default_model),
            "messages": [USER],
            **changes,
        }
    )
    reply = builder(name).read(entry, where="here")
    assert isinstance(reply, Reply), reply
    return builder(name).build(entry, reply)


def judged(name: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    vocabulary = loaded(name)
    facts = measure(table(rows), vocabulary.contract, vocabulary, shard_sha256=SHA)
    frame = pl.from_arrow(facts)
    assert isinstance(facts, pa.Table)
    assert isinstance(frame, pl.DataFrame)
    return judge(frame, vocabulary.contract).facts.to_dicts()


@pytest.mark.parametrize(("name", "mode", "message", "output"), WHOLE)
def test_a_whole_answer(name: str, mode: str, message: dict[str, Any], output: str) -> None:
    ids = ids_of(name, output)
    made = row(name, mode, message, "stop", len(ids))
    assert (made["output_ids"], made["rebuild_status"]) == (ids, "complete")
    (facts,) = judged(name, made)
    assert (facts["structure"], facts["text_equal"], facts["reencode_equal"]) == (None, True, True)
    assert (facts["evidence"], facts["truncated"]) == ("counted", False)
    (missing,) = judged(name, {**made, "completion_tokens": len(ids) + 1})
    assert (missing["evidence"], missing["evidence_reason"]) == ("contradicted", "count")


@pytest.mark.parametrize(("name", "mode", "message", "output"), WHOLE)
def test_the_same_ids_from_an_engine(name: str, mode: str, message: dict[str, Any], output: str) -> None:
    ids = ids_of(name, output)
    good, short = (row(name, mode, message, "stop", len(given), ids=given) for given in (ids, ids[:-1]))
    facts, cut = judged(name, good, short)
    assert (facts["evidence"], facts["structure"], facts["text_equal"]) == ("engine", None, True)
    assert (cut["truncated"], cut["structure"]) == (True, None)


CUT = [(*case, last) for case in WHOLE for last in case[2]]


@pytest.mark.parametrize(("name", "mode", "message", "output", "last"), CUT)
def test_a_cut_answer(name: str, mode: str, message: dict[str, Any], output: str, last: str) -> None:
    """Nothing stands behind the last part that began; what opens the first one does stand before it."""
    kept = {part: message[part] for part in list(message)[: list(message).index(last) + 1]}
    ids = ids_of(name, output[: output.rindex(message[last]) + len(message[last])])
    made = row(name, mode, {"content": None, **kept}, "length", len(ids))
    assert (made["output_ids"], made["rebuild_status"]) == (ids, "truncated")
    (facts,) = judged(name, made)
    assert (facts["structure"], facts["text_equal"], facts["reencode_equal"]) == (None, True, True)
    assert (facts["evidence"], facts["truncated"]) == ("counted", True)


# --- calls ---------------------------------------------------------------------------------------------

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
SEP = "<｜tool▁sep｜>"
CALLS = [
    (
        "qwen3",
        "thinking",
        (
            '<think>\nh\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
            "<tool_call>\n{}\n</tool_call><|im_end|>"
        ),
    ),
    ("qwen3", "instant", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>'),
    (
        "glm-4.5",
        "thinking",
        "\n<think>h</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call><|observation|>",
    ),
    (
        "glm-4.7",
        "thinking",
        "h</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call><|observation|>",
    ),
    (
        "deepseek-v3",
        "instant",
        (
            f"hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function{SEP}f\n```json\n{{}}\n```<｜tool▁call▁end｜>\n"
            f"<｜tool▁call▁begin｜>function{SEP}f\n```json\n{{}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>{EOS}"
        ),
    ),
    ("llama-3", "instant", "<|python_tag|>f(a=1)<|eom_id|>"),
    (
        "gpt-oss",
        "thinking",
        (
            "<|channel|>analysis<|message|>h<|end|><|start|>assistant<|channel|>commentary "
            'to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
        ),
    ),
]


@pytest.mark.parametrize(("name", "mode", "output"), CALLS)
def test_an_engine_with_calls(name: str, mode: str, output: str) -> None:
    """The ids are of the contract's form; nothing is said about a text that parsers wrote anew."""
    ids = ids_of(name, output)
    message = {"content": None, "tool_calls": [CALL]}
    (facts,) = judged(name, row(name, mode, message, "tool_calls", len(ids), ids=ids))
    assert (facts["structure"], facts["evidence"], facts["n_control_ids"]) == (None, "engine", 0)
    assert (facts["text_equal"], facts["reencode_equal"]) == (None, None)
    assert facts["n_tool_calls"] == ids.count(loaded(name).contract.call_begin_id or -1) > 0


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, mode, _ in CALLS])
def test_calls_are_not_rebuilt_from_text(name: str, mode: str) -> None:
    thoughts = {"reasoning": "h"} if mode == "thinking" else {}
    made = row(name, mode, {**thoughts, "content": None, "tool_calls": [CALL]}, "tool_calls", 20)
    assert (made["output_ids"], made["rebuild_status"]) == (None, "ambiguous")
    assert "tools_unsupported" in made["notes"]
    assert judged(name, made)[0]["evidence"] == "unverified"


WRONG = [
    # (contract, mode, output, the first thing that is wrong)
    ("qwen3", "thinking", "<think>h</think><tool_call>{}<|im_end|>", "tools_unbalanced"),
    ("qwen3", "thinking", "<think>h</think>{}</tool_call><|im_end|>", "tools_unbalanced"),
    ("qwen3", "thinking", "<think>h<|im_end|>", "end_think_missing"),
    ("qwen3", "thinking", "h</think>c<|im_end|>", "begin_think_missing"),
    ("qwen3", "thinking", "c<|im_end|>", "begin_think_missing"),
    ("qwen3", "thinking", "<think>h</think>c<|im_end|><|im_end|>", "terminal_repeated"),
    ("qwen3", "thinking", "<think><think>h</think>c<|im_end|>", "begin_think_inside"),
    ("qwen3", "thinking", "<think>h</think>c<|endoftext|><|im_end|>", "control_id_inside"),
    ("qwen3", "instant", "<think>\n\n</think>\n\nc<|im_end|>", "think_in_instant_mode"),
    (
        "glm-4.5",
        "thinking",
        "<think>h</think>c<tool_call>f<arg_value>1</arg_value></tool_call><|user|>",
        "tools_unbalanced",
    ),
    ("glm-4.5", "thinking", "\n<think>h</think>c<|user|>d", None),
    ("glm-4.7", "thinking", "<think>h</think>c<|user|>", "begin_think_inside"),
    ("deepseek-v3", "instant", f"<｜tool▁call▁begin｜>function{SEP}f<｜tool▁call▁end｜>{EOS}", "tools_unbalanced"),
    ("deepseek-v3", "instant", f"{BOS}c{EOS}", "control_id_inside"),
    ("deepseek-r1", "thinking", f"h</think>c</think>{EOS}", "end_think_repeated"),
    ("llama-3", "instant", "c<|eot_id|>d<|eot_id|>", "terminal_inside"),
]


@pytest.mark.parametrize(("name", "mode", "output", "code"), WRONG)
def test_ids_of_another_form(name: str, mode: str, output: str, code: str | None) -> None:
    made = row(name, mode, {"content": "c"}, "stop", 5, ids=ids_of(name, output))
    assert judged(name, made)[0]["structure"] == (code or "false_terminal")


@pytest.mark.parametrize(("name", "opening"), [("qwen3", "<think>"), ("glm-4.5", "\n<think>"), ("glm-4.7", "")])
def test_a_server_that_does_not_divide_the_answer(name: str, opening: str) -> None:
    """One end of thinking in the content is the separator where the count agrees, opened as the model opens it."""
    end = {"qwen3": "<|im_end|>"}.get(name, "<|user|>")
    text = f"{opening}\nhm\n</think>\n\nyes"
    ids = ids_of(name, text + end)
    made = row(name, "thinking", {"content": text}, "stop", len(ids))
    assert (made["output_ids"], made["reasoning"], made["content"]) == (ids, "\nhm\n", "\n\nyes")
    assert "separator_in_text" in made["notes"]
    for message, count in [(text, len(ids) + 4), (f"x{text}" if opening else f"<think>{text}", len(ids))]:
        made = row(name, "thinking", {"content": message}, "stop", count)
        assert (made["output_ids"], made["rebuild_status"]) == (None, "ambiguous")


def test_a_server_that_trims_is_two_ids_short_of_its_own_count() -> None:
    ids = ids_of("qwen3", "<think>\nWell, 1 < 2.\n</think>\n\nYes.<|im_end|>")
    made = row("qwen3", "thinking", {"reasoning": "Well, 1 < 2.", "content": "Yes."}, "stop", len(ids))
    assert len(made["output_ids"]) == len(ids) - 2
    (facts,) = judged("qwen3", made)
    assert (facts["evidence"], facts["evidence_reason"]) == ("contradicted", "count")
