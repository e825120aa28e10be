"""The pure parts: answers in ids, arguments, draws, scenarios."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from toolkit.contract import Contract, read_contract
from toolkit.errors import ConfigError
from toolkit.simulate.answers import Answer, answer, prompt_key
from toolkit.simulate.arguments import arguments_for
from toolkit.simulate.asked import Asked, read_request
from toolkit.simulate.draws import Draws
from toolkit.simulate.fate import fate_of
from toolkit.simulate.phrases import CONTENT, REASONING, fill
from toolkit.simulate.providers import PROVIDERS
from toolkit.simulate.routing import Routing, ranked
from toolkit.simulate.scenario import Scenario
from toolkit.vocabulary import Vocabulary, load_vocabulary

from .client import IM_END, THINK_END, request


def asked(contract: Contract, text: str, **fields: Any) -> Asked:
    return read_request(request(text, **fields), contract)


def answered(question: Asked, contract: Contract, vocabulary: Vocabulary) -> Answer:
    key = prompt_key(question.messages, question.tools, question.mode)
    return answer(question, contract, vocabulary, seed=1, key=key)


def test_every_cut_is_a_prefix_whose_text_stands_for_it(kimi: Contract, vocabulary: Vocabulary) -> None:
    question = asked(kimi, "An emoji story, please")
    whole = answered(question, kimi, vocabulary)
    cut_characters = 0
    for n in range(1, len(whole.ids)):
        cut = answered(replace(question, max_tokens=n), kimi, vocabulary)
        assert cut.ids == whole.ids[:n]
        assert (cut.finish, cut.has_terminal) == ("length", False)
        assert (whole.reasoning or "").startswith(cut.reasoning or "")
        assert (whole.content or "").startswith(cut.content or "")
        shown = vocabulary.encode_ordinary(cut.reasoning or "")
        shown += [THINK_END] if cut.has_think_end else []
        shown += vocabulary.encode_ordinary(cut.content or "")
        spelled = vocabulary.decode_bytes(cut.ids)
        if shown != list(cut.ids):
            cut_characters += 1
            with pytest.raises(UnicodeDecodeError):
                spelled.decode()
    assert cut_characters > 0
    assert whole.ids[-1] == IM_END


def test_cut_calls_show_what_began(kimi: Contract, vocabulary: Vocabulary) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"const": "abc def"}}}}}
    tool["function"]["parameters"]["required"] = ["x"]  # type: ignore[index]
    question = asked(kimi, "go", tools=[tool], parallel_tool_calls=False, reasoning={"enabled": False})
    whole = answered(question, kimi, vocabulary)
    assert [(c.id, c.name, c.arguments) for c in whole.tool_calls] == [("functions.f:0", "f", '{"x": "abc def"}')]
    begun = whole.ids.index(163598) + 1
    shown = {
        n: [c.arguments for c in answered(replace(question, max_tokens=n), kimi, vocabulary).tool_calls]
        for n in (begun - 1, begun, begun + 1, len(whole.ids) - 1)
    }
    assert shown[begun - 1] == []
    assert shown[begun] == [""]
    assert shown[begun + 1] == ['{"']
    assert shown[len(whole.ids) - 1] == ['{"x": "abc def"}']


def test_texts_spell_no_special_token_and_vary_at_their_ends(kimi: Contract, vocabulary: Vocabulary) -> None:
    for pieces in (REASONING, CONTENT):
        for text in (piece for topic in pieces.values() for piece in topic):
            assert vocabulary.specials_in(fill(text, Draws("x"))) == []
    answers = [answered(asked(kimi, f"question {i}"), kimi, vocabulary) for i in range(60)]
    assert 10 < sum((a.content or "").startswith(" ") for a in answers) < 50
    assert any((a.content or "").endswith("\n") for a in answers)
    assert len({a.ids for a in answers}) == 60


def test_contracts_without_reasoning_are_obeyed() -> None:
    contract = read_contract("kimi-k2-instruct")
    vocabulary = load_vocabulary(contract)
    question = read_request({**request("hello"), "model": contract.default_model}, contract)
    made = answered(question, contract, vocabulary)
    assert made.reasoning is None
    assert made.ids == (*vocabulary.encode_ordinary(made.content or ""), IM_END)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 4}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}}},
    {"type": "object", "properties": {"a": {"type": "integer", "maximum": -5, "multipleOf": 5}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"enum": ["x", 1, None]}, "b": {"const": [1]}}, "required": ["a", "b"]},
    {"type": "object", "properties": {"a": {"type": ["null", "string"], "minLength": 30}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2}}, "required": ["a"]},
    {"type": "object", "required": ["undeclared"]},
    {
        "type": "object",
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 4}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}},
        "allOf": [{"properties": {"b": {"type": "string", "format": "date"}}, "required": ["b"]}],
        "required": ["a"],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_satisfy_the_schema(schema: dict[str, Any]) -> None:
    for i in range(30):
        made = arguments_for(schema, Draws(i))
        assert list(jsonschema.Draft202012Validator(schema).iter_errors(made)) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#/properties/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": [1], "required": "a"},
        {"type": {"a": 1}},
        {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 5e-324}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 10**14}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"a": {"type": "array", "minItems": 10**9, "items": {"$ref": "#"}}},
            "required": ["a"],
        },
    ],
)
def test_hostile_schemas_end(schema: dict[str, Any]) -> None:
    for i in range(10):
        assert len(str(arguments_for(schema, Draws(i)))) < 1_000_000


def test_draws_are_the_same_everywhere_and_even() -> None:
    assert [Draws("a", 1).between(0, 999) for _ in range(2)] == [Draws("a", 1).between(0, 999)] * 2
    assert Draws("ab", "c").unit() != Draws("a", "bc").unit()
    draws = Draws("even")
    counts = Counter(draws.between(1, 4) for _ in range(4000))
    assert set(counts) == {1, 2, 3, 4}
    assert all(900 < n < 1100 for n in counts.values())


def test_fates_follow_rates_and_shares() -> None:
    scenario = Scenario(faults={"http_429": 0.2, "cut_stream": 0.1, "blank_lines": 0.5}, latency_s=(0.1, 0.2))
    fates = [fate_of(scenario, PROVIDERS[0], str(i), 0, face="openrouter", stream=i % 2 == 0) for i in range(4000)]
    faults = Counter(fate.fault for fate in fates)
    assert faults["http_429"] / 4000 == pytest.approx(0.2, abs=0.03)
    assert faults["cut_stream"] / 2000 == pytest.approx(0.1, abs=0.03)
    assert sum("blank_lines" in fate.habits for fate in fates) / 2000 == pytest.approx(0.5, abs=0.05)
    assert all(0.1 <= fate.latency_s <= 0.2 for fate in fates)
    names = Counter(ranked(PROVIDERS, Routing(), Draws("share", i))[0].name for i in range(4000))
    for provider in PROVIDERS:
        assert names[provider.name] / 4000 == pytest.approx(provider.share, abs=0.03)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"providers": ()}, "providers"),
        ({"providers": (PROVIDERS[0], PROVIDERS[0])}, "slug"),
        ({"providers": (replace(PROVIDERS[0], share=0),)}, "share"),
        ({"faults": {"http_418": 0.1}}, "http_418"),
        ({"faults": {"http_429": 1.1}}, "http_429"),
        ({"faults": {"http_429": 0.6, "http_502": 0.6}}, "sum"),
        ({"latency_s": (2, 1)}, "latency_s"),
        ({"latency_s": (-1, 1)}, "latency_s"),
    ],
)
def test_impossible_scenarios_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Scenario(**fields)
