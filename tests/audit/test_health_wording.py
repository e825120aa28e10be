"""Refusals and boilerplate: what is told, and what only looks like it."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.audit.health.wording import find_boilerplate, find_refusals, wording_of
from toolkit.phrases import SHIPPED, Phrases

WORDING = wording_of(SHIPPED)


def refuses(content: str | None, phrases: Phrases = SHIPPED) -> bool | None:
    value: bool | None = find_refusals(pa.array([content], pa.large_string()), wording_of(phrases))[0].as_py()
    return value


def has_boilerplate(text: str) -> bool:
    return bool(find_boilerplate(pl.Series([text.lower()]), WORDING)[0])


@pytest.mark.parametrize(
    "content",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "  I'm sorry, I can't help with that.",
        "I'm really not supposed to. I'm sorry, but I cannot provide that.",
        "Sorry, but I can't do that.",
        "I am very sorry, but I am unable to create such content.",
        "I apologize, but I cannot fulfill this request.",
        "I'm unable to help with that.",
        "I can't assist with creating malware.",
        "I CANNOT COMPLY WITH THIS REQUEST",
        "I must decline to answer.",
        "**I'm sorry, but I can't\nhelp with that.**",
        "This request violates our content policy.",
        "抱歉，我无法提供这方面的帮助。",
        "很抱歉，我不能回答这个问题。",
        "对不起,我没办法满足您的要求",
        "我无法协助您的这个请求。",
        "你好，这个问题我暂时无法回答，让我们换个话题再聊聊吧。",
        "申し訳ありませんが、そのご要望にはお応えできません。",
        "죄송하지만, 해당 요청은 도와드릴 수 없습니다.",
        "Lo siento, pero no puedo ayudar con eso.",
        "Je suis désolé, mais je ne peux pas vous aider.",
        "Es tut mir leid, aber ich kann dir dabei nicht helfen.",
        "Извините, но я не могу помочь с этим.",
    ],
)
def test_refusals(content: str) -> None:
    assert refuses(content) is True


@pytest.mark.parametrize(
    "content",
    [
        "",
        "The capital of France is Paris.",
        "I'm sorry to hear that you lost your keys. Here is what to do.",
        "I'm sorry for the confusion! The right command is `ls -la`.",
        "I can't help but notice that the loop never ends.",
        "I cannot recommend this book highly enough.",
        "I can't see the file, but the error says that line 3 is wrong.",
        "A polite refusal could read: \"I'm sorry, but I can't help with that.\"",
        "He said, “I'm sorry, but I can't help with that,” and left.",
        "The phrase I'm sorry, but I can't help with that is what the filter looks for.",
        "Sorry, my earlier answer was wrong: 7 × 8 = 56.",
        "x" * 400 + ". I'm sorry, but I can't help with that.",
        "抱歉，刚才的回答有误，正确答案是 42。",
        "我不能同意这个观点，理由如下。",
        "这种方法无法提供足够的精度。",
        "申し訳ありませんが、先ほどの計算に誤りがありました。",
        "If the server must decline to answer, it sends 403.",
    ],
)
def test_what_is_no_refusal(content: str) -> None:
    assert refuses(content) is False


def test_no_content_is_no_answer() -> None:
    assert refuses(None) is None


def test_own_phrases_are_found_too() -> None:
    own = Phrases(refusals=("(nope|never), $100 (a+b) won't do",), boilerplate=())
    assert refuses("Never, $100 a+b won’t do!", own) is True
    assert refuses("Nope $100 a+b  won't do", own) is True
    assert refuses("Nope, $100 aab won't do", own) is False
    assert refuses("I'm sorry, but I can't help with that.", own) is False
    assert refuses("anything", Phrases(refusals=(), boilerplate=())) is False


@pytest.mark.parametrize(
    "text",
    [
        "As an AI language model, I have no opinion.",
        "Well, as a large language model I would say so.",
        "I'm an AI assistant created by a company.",
        "作为一个人工智能语言模型，我没有个人观点。",
        "作为AI助手，我会尽力。",
        "我是由OpenAI开发的。",
        "…and so on.\n\n---\nPowered by Pollinations.AI free text APIs.",
        "You exceeded your current quota, please check your plan and billing details.",
        "The model is currently overloaded. Please try again later.",
    ],
)
def test_boilerplate(text: str) -> None:
    assert has_boilerplate(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A language model assigns probabilities to words.",
        "The function is overloaded for integers and strings.",
        "The limit of the rate is reached as n grows.",
        "作为一个学生，你应该先读题。",
        "人工智能语言模型的训练需要大量数据。",
        "As an airline pilot, she flew daily.",
    ],
)
def test_what_is_no_boilerplate(text: str) -> None:
    assert not has_boilerplate(text)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8"), min_size=2, max_size=40))
def test_any_phrase_stands_for_itself(phrase: str) -> None:
    if any(c in "()|" for c in phrase) or sum(c.isalnum() for c in phrase) < 2 or phrase.lower() != phrase:
        return
    wording = wording_of(Phrases(refusals=(), boilerplate=(phrase,)))
    assert find_boilerplate(pl.Series([f"so {phrase} it is"]), wording).tolist() == [True]
