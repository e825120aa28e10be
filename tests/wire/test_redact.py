"""Headers and keys are taken out by the names of their fields; what a model said stays word for word."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.wire.redact import HIDDEN, hide_in_text, without_secrets

KEY = "sk-or-v1-0123456789abcdef0123"
SAID = f'curl -H "Authorization: Bearer {KEY}"'


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ({"headers": {"Authorization": f"Bearer {KEY}"}}, {"headers": HIDDEN}),
        ({"headers": [["authorization", KEY]], "a": 1}, {"headers": HIDDEN, "a": 1}),
        ({"request": {"extra_headers": {"X": KEY}, "n": 1}}, {"request": {"extra_headers": HIDDEN, "n": 1}}),
        ({"meta": [{"api_key": KEY}, {"b": 2}]}, {"meta": [{"api_key": HIDDEN}, {"b": 2}]}),
        ({"OPENROUTER_API_KEY": KEY}, {"OPENROUTER_API_KEY": HIDDEN}),
        ({"Set-Cookie": "a=b"}, {"Set-Cookie": HIDDEN}),
        ({"authorization": None}, {"authorization": None}),
    ],
)
def test_fields_that_hold_secrets(value: Any, clean: Any) -> None:
    assert without_secrets(value) == clean


@pytest.mark.parametrize(
    "value",
    [
        {"content": SAID, "reasoning": SAID},
        {"messages": [{"role": "user", "content": SAID, "headers": "x"}]},
        {"tools": [{"function": {"parameters": {"properties": {"authorization": {"default": "x"}}}}}]},
        {"tool_calls": [{"function": {"arguments": SAID}}]},
        {"tokens": 3, "max_tokens": 5, "usage": {"prompt_tokens": 3}},
        [1, [2, {"a": None}]],
        "text",
    ],
)
def test_what_was_asked_and_answered_stays_the_same_object(value: Any) -> None:
    assert without_secrets(value) is value


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('{"Authorization": "Bearer abc.def", "a": 1', f'{{"Authorization": "{HIDDEN}", "a": 1'),
        ('{\\"authorization\\": \\"Bearer abc\\"}', f'{{\\"authorization\\": \\"{HIDDEN}\\"}}'),
        ("Authorization: Basic dXNlcg==\r\nHost: x", f"Authorization: {HIDDEN}\r\nHost: x"),
        (f"wrong key {KEY}.", f"wrong key {HIDDEN}."),
        ("x-api-key=abc, b", f"x-api-key={HIDDEN}, b"),
        ("the bearer of this", f"the bearer {HIDDEN} this"),
        ("nothing here", "nothing here"),
    ],
)
def test_running_text(text: str, clean: str) -> None:
    assert hide_in_text(text) == clean
