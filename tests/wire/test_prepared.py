"""Rows of prepared datasets: where the prompt ends, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.records import IdsSource, Reply, ToolCall
from toolkit.wire.prepared import NotOneSplitError, is_prepared, read_prepared, split
from toolkit.wire.reply import NoAnswer

IDS = [10, 11, 12, 13]


@pytest.mark.parametrize(
    "mask",
    [
        {"loss_mask": [0, 0, 1, 1]},
        {"loss_mask": [False, False, True, True]},
        {"loss_mask": [[0, 0, 1, 1]]},
        {"completion_mask": [0, 0, 1, 1]},
        {"assistant_masks": [0, 0, 1, 1]},
        {"labels": [-100, -100, 12, 13]},
        {"labels": [-100, -100, 12, 13], "attention_mask": [1, 1, 1, 1]},
        {"loss_mask": None, "labels": [-100, -100, 12, 13]},
    ],
)
def test_every_spelling_of_a_mask(mask: dict[str, Any]) -> None:
    assert split({"input_ids": IDS, **mask}) == ([10, 11], [12, 13])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"input_ids": [], "loss_mask": []}, "ids_invalid"),
        ({"input_ids": [1, True], "loss_mask": [0, 1]}, "ids_invalid"),
        ({"input_ids": [1, -5], "loss_mask": [0, 1]}, "ids_invalid"),
        ({"input_ids": [1, 2**31], "loss_mask": [0, 1]}, "ids_invalid"),
        ({"input_ids": "1,2", "loss_mask": [0, 1]}, "ids_invalid"),
        ({"input_ids": IDS, "loss_mask": [0, 0, 1]}, "mask_length"),
        ({"input_ids": IDS, "loss_mask": [0, 0, 1, 2]}, "mask_invalid"),
        ({"input_ids": IDS, "loss_mask": "0011"}, "mask_invalid"),
        ({"input_ids": IDS, "labels": [-100, -100, 12, 14]}, "labels_differ"),
        ({"input_ids": IDS, "loss_mask": [0, 0, 0, 0]}, "nothing_supervised"),
        ({"input_ids": IDS, "labels": [-100] * 4}, "nothing_supervised"),
        ({"input_ids": IDS, "loss_mask": [1, 1, 1, 1]}, "prompt_unmarked"),
        ({"input_ids": IDS, "loss_mask": [0, 1, 0, 1]}, "mask_not_one_split"),
        ({"input_ids": IDS, "loss_mask": [0, 1, 1, 0]}, "mask_not_one_split"),
        ({"input_ids": IDS, "loss_mask": [0, 0, 1, 1], "attention_mask": [0, 1, 1, 1]}, "padded"),
    ],
)
def test_what_is_no_prompt_and_completion(line: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotOneSplitError) as raised:
        split(line)
    assert raised.value.reason == reason
    answer = read_prepared(200, json.dumps(line))
    assert isinstance(answer, NoAnswer)
    assert answer.reason == reason


def test_what_a_row_says_beside_its_ids() -> None:
    line = {
        "input_ids": IDS, "loss_mask": [0, 0, 1, 1], "content": " yes", "finish_reason": "stop", "provider": "Chutes",
        "usage": {"prompt_tokens": 2, "completion_tokens": 2}, "tool_calls": '[{"id":"i","name":"f","arguments":"{}"}]',
    }  # fmt: skip
    reply = read_prepared(200, json.dumps(line))
    assert isinstance(reply, Reply)
    assert (reply.prompt_ids, reply.output_ids, reply.ids_source) == ([10, 11], [12, 13], IdsSource.GIVEN)
    assert (reply.content, reply.finish_reason, reply.provider) == (" yes", "stop", "Chutes")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.undivided) == (2, 2, None)
    assert reply.tool_calls == (ToolCall(id="i", name="f", arguments="{}"),)


def test_rows_without_text_are_read_from_their_ids() -> None:
    reply = read_prepared(200, json.dumps({"input_ids": IDS, "loss_mask": [0, 0, 1, 1], "completion_tokens": 2}))
    assert isinstance(reply, Reply)
    assert (reply.undivided, reply.content, reply.completion_tokens) == ("", None, 2)


def test_which_lines_are_prepared() -> None:
    assert is_prepared({"input_ids": [], "labels": []})
    assert not is_prepared({"input_ids": [1]})
    assert not is_prepared({"input_ids": [1], "loss_mask": [1], "output_ids": [1]})


@pytest.mark.parametrize("body", ["[]", "{", "3"])
def test_what_is_no_object(body: str) -> None:
    assert isinstance(read_prepared(200, body), NoAnswer)
