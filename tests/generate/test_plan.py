from __future__ import annotations

import pytest

from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.generate.plan import RowThere, final_failures, plan_asks, split_answered
from toolkit.records import Failure, Prompt, row_key_of

USER = [{"role": "user", "content": "hi"}]


def test_every_prompt_is_asked_samples_times_each_with_its_own_identity(kimi: Contract):
    prompts = [Prompt(id="a", messages=USER), Prompt(id="b", messages=USER, mode="instant", max_tokens=5)]
    asks = plan_asks(prompts, DatasetSettings(samples=2, sampling={"top_p": 0.9}, max_tokens=10), kimi)
    assert [(ask.identity, ask.mode, ask.max_tokens) for ask in asks] == [
        (("a", 0, 0), "thinking", 10),
        (("a", 0, 1), "thinking", 10),
        (("b", 0, 0), "instant", 5),
        (("b", 0, 1), "instant", 5),
    ]
    assert len({ask.row_key for ask in asks}) == 4
    assert asks[3].row_key == row_key_of(
        contract="kimi-k2.5", messages=USER, tools=None, mode="instant", sampling={"top_p": 0.9}, max_tokens=5,
        sample_index=1, turn=0,
    )  # fmt: skip


def test_foreign_tool_ids_are_rewritten_before_the_identity_is_made(kimi: Contract):
    def history(call_id: str) -> list[dict]:
        call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": "{}"}}
        return [
            *USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "2"},
        ]

    prompts = [Prompt(id="a", messages=history("call_9f3a")), Prompt(id="b", messages=history("functions.add:0"))]
    foreign, own = plan_asks(prompts, DatasetSettings(), kimi)
    assert foreign.messages == own.messages
    assert foreign.row_key == own.row_key
    assert (foreign.tool_ids, own.tool_ids) == ({"call_9f3a": "functions.add:0"}, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DatasetSettings(model="openai/gpt-4o"), "model: expected one of moonshotai/kimi-k2.5.* found 'openai/gpt-4o'"),
        (DatasetSettings(model="moonshotai/kimi-k2.5:nitro"), "nitro"),
        (DatasetSettings(mode="deep"), "unknown mode 'deep'"),
    ],
)
def test_a_model_or_mode_of_another_contract_is_refused(kimi: Contract, settings: DatasetSettings, words: str):
    with pytest.raises(ConfigError, match=words):
        plan_asks([Prompt(id="a", messages=USER)], settings, kimi)


def test_imported_rows_answer_whatever_was_asked_and_generated_ones_only_the_same(kimi: Contract):
    asks = plan_asks([Prompt(id=name, messages=USER) for name in "abc"], DatasetSettings(), kimi)
    there = {("a", 0, 0): RowThere("other", "import"), ("b", 0, 0): RowThere(asks[1].row_key, "generate")}
    left, answered = split_answered(asks, there, "B3")
    assert ([ask.sample_id for ask in left], answered) == (["c"], 2)
    with pytest.raises(ConfigError, match=r"dataset B3: 1 answered prompts .* the first of them 'b'"):
        split_answered(asks, there | {("b", 0, 0): RowThere("other", "generate")}, "B3")


def test_only_final_failures_of_the_same_request_keep_it_from_being_asked():
    def failure(**changes) -> Failure:
        return Failure(
            **{"reason": "http_400", "detail": "", "final": True, "where": "x", "sample_id": "a", "row_key": "k"}
            | changes
        )

    failures = [
        failure(),
        failure(sample_id="b", final=False),
        failure(sample_id=None),
        failure(sample_id="c", row_key=None),
    ]
    assert final_failures(failures) == {(("a", 0, 0), "k")}
