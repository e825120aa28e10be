"""The key in whatever dress it comes back."""

from __future__ import annotations

import base64
import html
import json
import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.config import EndpointSettings, Secret, parse_settings
from toolkit.contract import Contract
from toolkit.errors import TransientError
from toolkit.generate.outcome import Answered, Judge, Refused
from toolkit.generate.request import wire_format
from toolkit.generate.secrecy import KeyWatch
from toolkit.generate.transport import Response
from toolkit.rows import RowBuilder
from toolkit.vocabulary import Vocabulary
from toolkit.wire.strings import strings_of

from .asks import ask_of
from .server import completion

KEY = "sk-or-v1-0123456789abcdef+not/a=real-key"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
DRESSES = [
    ("plain", KEY),
    ("escaped for JSON", ESCAPED),
    ("escaped in part", ESCAPED[:6] + KEY[1:]),
    ("escaped twice", ESCAPED.replace("\\", "\\\\")),
    ("slashes escaped", KEY.replace("/", "\\/")),
    ("in a URL", quote(KEY, safe="")),
    ("in a URL, small letters", quote(KEY, safe="").lower()),
    ("in a URL, letter by letter", "".join(f"%{ord(letter):02X}" for letter in KEY)),
    ("base64", base64.b64encode(KEY.encode()).decode()),
    ("base64 for URLs", base64.urlsafe_b64encode(KEY.encode()).decode()),
    ("base64 of the header", base64.b64encode(f"Bearer {KEY}".encode()).decode()),
    ("base64 inside a text", base64.b64encode(f"x{KEY}y".encode()).decode()),
    ("for HTML", "".join(f"&#{ord(letter)};" for letter in KEY)),
    ("hex", KEY.encode().hex()),
    ("two bytes a letter", KEY.encode("utf-16-le").decode()),
]


@pytest.fixture
def judge(kimi: Contract, vocabulary: Vocabulary) -> Judge:
    return judge_of(kimi, vocabulary)


def judge_of(kimi: Contract, vocabulary: Vocabulary, endpoint: EndpointSettings | None = None) -> Judge:
    endpoint = endpoint or parse_settings(b"", "tokenproof.toml").endpoint("openrouter")
    return Judge(endpoint=endpoint, builder=RowBuilder(kimi, vocabulary), key=Secret(KEY))


def outcome_of(judge: Judge, body: str | bytes, status: int = 200) -> Answered | Refused:
    contract, vocabulary = judge.builder.contract, judge.builder.vocabulary
    ask = ask_of(contract)
    request = wire_format(judge.endpoint, contract, vocabulary).request_of(ask)
    raw = body.encode() if isinstance(body, str) else body
    return judge.of_response(ask, request, Response(status=status, headers={}, body=raw, latency_s=0.1), at=1.0)


def transcript(*deltas: dict[str, Any], end: str = "") -> str:
    events = [{"model": "moonshotai/kimi-k2.5", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return "".join(f"data: {json.dumps(e)}\n\n" for e in [*events, last]) + (end or "data: [DONE]\n\n")


@pytest.mark.parametrize("dress", [d[1] for d in DRESSES], ids=[d[0] for d in DRESSES])
def test_an_answer_with_the_key_in_it_is_no_row_and_its_body_is_not_kept(judge: Judge, dress: str):
    # Into the raw text, so that escapes stay escapes.
    body = json.dumps(completion(text="MARK")).replace("MARK", dress if "\0" not in dress else json.dumps(dress)[1:-1])
    outcome = outcome_of(judge, body)
    assert isinstance(outcome, Refused)
    failure = outcome.failure
    assert (failure.reason, failure.final, failure.body, outcome.again) == ("secret_echoed", False, None, False)
    assert (failure.provider, failure.cost_usd, failure.status) == ("Chutes", 0.001, None)
    assert not KeyWatch(Secret(KEY)).finds_in(repr(outcome))


@pytest.mark.parametrize("dress", [d[1] for d in DRESSES], ids=[d[0] for d in DRESSES])
@pytest.mark.parametrize("form", ['{"error": {"code": 400, "message": "no: MARK"}}', "<html>MARK</html>", "MARK"])
def test_an_error_with_the_key_in_it_keeps_its_kind_and_none_of_the_key(judge: Judge, dress: str, form: str):
    outcome = outcome_of(judge, form.replace("MARK", dress), status=400)
    assert isinstance(outcome, Refused)
    assert outcome.failure.reason == "http_400"
    assert dress not in f"{outcome.failure.body} {outcome.failure.detail}"
    assert not KeyWatch(Secret(KEY)).finds_in(repr(outcome))


def test_a_key_on_the_edge_of_a_message_is_not_cut_before_it_is_hidden(judge: Judge):
    for pad in range(130, 200):
        for dress in (KEY, ESCAPED):
            body = json.dumps({"error": {"code": 400, "message": "MARK"}}).replace("MARK", "x" * pad + dress)
            outcome = outcome_of(judge, body, status=400)
            assert isinstance(outcome, Refused)
            assert KEY[:8] not in repr(outcome)


def test_a_stopped_run_does_not_say_the_key(judge: Judge):
    outcome = outcome_of(judge, json.dumps({"error": {"code": 401, "message": f"bad key {KEY}"}}), status=401)
    assert isinstance(outcome, Refused)
    assert outcome.stops_run == "status 401, code 401: bad key ***"


@given(cuts=st.lists(st.integers(0, len(KEY)), min_size=1, max_size=6).map(sorted), key=st.sampled_from(
    ["content", "reasoning"]))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_a_key_that_is_cut_into_deltas(kimi: Contract, vocabulary: Vocabulary, cuts: list[int], key: str):
    pieces = [KEY[a:b] for a, b in zip([0, *cuts], [*cuts, len(KEY)], strict=True)]
    judge = judge_of(kimi, vocabulary)
    for end in ("", 'data: {"error": {"code": 502, "message": "m"}}\n\n'):
        outcome = outcome_of(judge, transcript(*({key: piece} for piece in pieces), end=end))
        assert isinstance(outcome, Refused)
        assert outcome.failure.reason == ("http_502" if end else "secret_echoed")
        assert not any(KEY in string for string in strings_of(outcome.failure.body or ""))


def test_a_key_in_arguments_ids_and_parts(judge: Judge):
    def call(**fields: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "id": fields.get("id"), "function": {"arguments": fields.get("a", "")}}]}

    parts = completion()
    parts["choices"][0]["message"]["content"] = [{"type": "text", "text": KEY[:9]}, {"type": "text", "text": KEY[9:]}]
    echoes = [
        transcript(call(id="functions.f:0", a=KEY[:7]), call(a=KEY[7:])),
        transcript(call(id=KEY)),
        json.dumps(parts),
        json.dumps(completion(id=KEY)),
    ]
    for body in echoes:
        outcome = outcome_of(judge, body)
        assert isinstance(outcome, Refused)
        assert outcome.failure.reason == "secret_echoed"


def test_a_key_that_is_told_in_token_ids(kimi: Contract, vocabulary: Vocabulary):
    endpoint = parse_settings(b'[endpoints.sglang]\nurl = "http://127.0.0.1:1"', "t").endpoint("sglang")
    meta = {"finish_reason": {"type": "stop", "matched": 163586}, "completion_tokens": 1}
    ids = [*vocabulary.encode_ordinary(f"it is {KEY}"), 163586]
    body = json.dumps({"output_ids": ids, "meta_info": meta})
    outcome = outcome_of(judge_of(kimi, vocabulary, endpoint), body)
    assert isinstance(outcome, Refused)
    assert outcome.failure.reason == "secret_echoed"


@pytest.mark.parametrize("text", ["Hello.", "50% &amp; more \\u0041 \u0000", KEY[:-1], "%zz &#x; \\u00"])
def test_other_texts_are_answers(judge: Judge, text: str):
    outcome = outcome_of(judge, json.dumps(completion(text=text)))
    assert isinstance(outcome, Answered)
    assert outcome.reply.content == text
    assert isinstance(outcome_of(judge, transcript({"reasoning": "r"}, {"content": text})), Answered)


def test_an_error_of_the_connection_is_hidden_before_it_is_cut(judge: Judge, kimi: Contract, vocabulary: Vocabulary):
    ask = ask_of(kimi)
    request = wire_format(judge.endpoint, kimi, vocabulary).request_of(ask)
    for pad in range(240, 305):
        error = TransientError("x" * pad + KEY, reason="connection_failed")
        assert KEY[:8] not in repr(judge.of_error(ask, request, error, at=1.0))


@pytest.mark.parametrize("key", ['quo"te-and\\back-slash', "apo'strophe&more<x>"])
def test_a_key_with_letters_that_json_or_html_change(key: str):
    watch = KeyWatch(Secret(key))
    nested = json.dumps({"message": json.dumps({"raw": f"bad key {key}"})})
    for body in (json.dumps({"m": key}), nested, html.escape(key), f"data: {json.dumps({'m': key})}\n\n"):
        assert watch.finds_in_body(body)
    assert not watch.finds_in_body(json.dumps({"m": key[:-1]}))


PLAIN = "sk-or-v1-0123456789abcdef-zzz??".replace("?", "~")
"""A key in which no encoding needs to change a letter: bodies in which nothing can hide are not looked into."""


def dressed(letter: str, how: str) -> str:
    code = ord(letter)
    return {
        "raw": letter, "json": f"\\u{code:04x}", "json twice": f"\\\\u{code:04x}", "url": f"%{code:02X}",
        "url twice": f"%25{code:02x}", "html": f"&#{code};", "html hex": f"&#x{code:x};",
        "html twice": f"&amp;#{code};", "two bytes": f"{letter}\\u0000", "two raw bytes": f"{letter}\0",
    }[how]  # fmt: skip


HOW = st.sampled_from([
    "raw", "json", "json twice", "url", "url twice", "html", "html hex", "html twice", "two bytes", "two raw bytes",
])  # fmt: skip


@given(hows=st.lists(HOW, min_size=len(PLAIN), max_size=len(PLAIN)))
@settings(max_examples=300, deadline=None)
def test_a_plain_key_of_which_each_letter_is_dressed_its_own_way(hows: list[str]):
    told = "".join(dressed(letter, how) for letter, how in zip(PLAIN, hows, strict=True))
    watch = KeyWatch(Secret(PLAIN))
    body = f'{{"a": "100% & <b> \\n \\/ {told} x"}}'
    assert watch.finds_in_body(body)
    if watch.hide_in(body) == body:
        assert watch.finds_in_decoded(body)


@given(at=st.integers(0, len(PLAIN) - 1), how=HOW)
@settings(max_examples=100, deadline=None)
def test_a_plain_key_of_which_one_letter_is_dressed(at: int, how: str):
    told = PLAIN[:at] + dressed(PLAIN[at], how) + PLAIN[at + 1 :]
    assert KeyWatch(Secret(PLAIN)).finds_in_body(f'{{"a": "{told}"}}')


@pytest.mark.parametrize("letter", string.ascii_letters + string.digits + "_.+=:~-")
def test_no_letter_of_a_plain_key_can_be_dressed_so_that_a_body_seems_plain(letter: str):
    watch = KeyWatch(Secret(PLAIN))
    for how in ("json", "json twice", "url", "url twice", "html", "html hex", "html twice", "two bytes"):
        told = dressed(letter, how)
        assert not watch.is_plain(f'{{"a": "{told}"}}')
        assert not watch.is_plain(f'{{"a": "{told.replace("%", "%25").replace("&", "&amp;")}"}}')


@pytest.mark.parametrize(
    "text", ["50% off", "%20%22%2F%3C", "&lt;b&gt; &quot;&nbsp;", "\\u003cb\\u003e", "\\n \\/ \\t"]
)
def test_escapes_of_what_no_plain_key_has_leave_a_body_plain(text: str):
    assert KeyWatch(Secret(PLAIN)).is_plain(f'{{"a": "{text}"}}')
    assert not KeyWatch(Secret(KEY)).is_plain(f'{{"a": "{text}"}}')
    assert not KeyWatch(Secret(PLAIN)).is_plain(f'data: {{"a": "{text}"}}\n\n')


@given(at=st.integers(1, len(PLAIN) - 1))
@settings(max_examples=20, deadline=None)
def test_a_plain_key_that_is_cut_into_parts_of_a_plain_body(kimi: Contract, vocabulary: Vocabulary, at: int):
    endpoint = parse_settings(b"", "tokenproof.toml").endpoint("openrouter")
    judge = Judge(endpoint=endpoint, builder=RowBuilder(kimi, vocabulary), key=Secret(PLAIN))
    texts = [{"type": "text", "text": PLAIN[:at]}, {"type": "text", "text": PLAIN[at:]}]
    for field in ("content", "reasoning_details"):
        document = completion()
        message = document["choices"][0]["message"]
        message |= {"reasoning": None, "reasoning_content": None, field: texts}
        body = json.dumps(document)
        assert judge.watch.is_plain(body)
        outcome = outcome_of(judge, body)
        assert isinstance(outcome, Refused)
        assert outcome.failure.reason == "secret_echoed"


@given(key=st.text(string.ascii_letters + string.digits + "_.+=:~-", min_size=8, max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_spelling_of_a_plain_key_has_a_slash_that_could_be_escaped(key: str):
    watch = KeyWatch(Secret(key))
    assert watch._plain
    assert not any("/" in spelling for spelling in watch._spellings)


@pytest.mark.parametrize("text", ["50% off", "a & b &&", "%zz", "x %5 y", r"C:\\dir", "\\u0041 \\/ %41 &amp; &#65;"])
def test_a_body_in_which_something_may_hide_holds_no_key(text: str):
    assert not KeyWatch(Secret(PLAIN)).finds_in_body(f'{{"a": "{text}"}}')


def test_without_a_key_or_with_a_short_word_for_one_nothing_is_hidden():
    for key in (None, Secret("the")):
        watch = KeyWatch(key)
        assert watch.hide_in("the answer") == "the answer"
        assert not watch.finds_in("the answer")
        assert not watch.finds_in_body('{"a": "the"}')
    assert "sk-" not in repr(KeyWatch(Secret(KEY)))


# --- what a body decodes to ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "strings"),
    [
        ('{"a": ["x", {"b": "y"}, "z"], "c": "\\u0041", "n": 1}', {"a", "b", "c", "n", "xz", "y", "A"}),
        ('data: {"t": "a"}\n\n: ping\n\ndata: {"t": "b"}\n\ndata: [DONE]\n\n', {"tt", "ab", "[DONE]"}),
        ("<html>", {"<html>"}),
        ('"s"', {"s"}),
        ("7", set()),
    ],
)
def test_strings_of_a_body(body: str, strings: set[str]):
    assert set(strings_of(body)) == strings
