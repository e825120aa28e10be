from __future__ import annotations

import json

import pytest

from toolkit.config import Routing
from toolkit.generate.account import listing_of, remaining_usd
from toolkit.generate.budget import Price


def body(**data: object) -> bytes:
    return json.dumps({"data": data}).encode()


@pytest.mark.parametrize(
    ("key", "credit", "left"),
    [
        (body(limit_remaining=4.5), None, 4.5),
        (body(limit_remaining=None), None, None),
        (body(limit_remaining=None), body(total_credits=10, total_usage=7.5), 2.5),
        (body(limit_remaining=1), body(total_credits=10, total_usage=7.5), 1.0),
        (body(limit_remaining=True), body(total_credits="x", total_usage=1), None),
        (b"<html>", b"", None),
        (b'{"data": [1]}', b'{"data": {"total_credits": 1}}', None),
        (b'{"data": {"limit_remaining": "NaN"}}', None, None),
        (body(limit_remaining=-0.5), None, -0.5),
    ],
)
def test_what_is_left_is_the_less_of_limit_and_credit(key: bytes, credit: bytes | None, left: float | None):
    assert remaining_usd(key, credit) == left


ENDPOINTS = body(
    endpoints=[
        {
            "provider_name": "Moonshot AI",
            "tag": "moonshotai/int4",
            "pricing": {"prompt": "0.000001", "completion": "2e-6"},
        },
        {"provider_name": "Chutes", "tag": "chutes", "pricing": {"prompt": "0.000003", "completion": "0.000001"}},
        {"provider_name": "Odd", "tag": 7, "pricing": {"prompt": "-1", "completion": "1"}},
        "nonsense",
        {"provider_name": "Nobody", "pricing": "free"},
    ]
)


def test_the_highest_price_of_those_who_may_answer_is_taken():
    assert listing_of(ENDPOINTS, Routing()).price == Price(3e-6, 2e-6)
    assert listing_of(ENDPOINTS, Routing(only=("moonshotai",))).price == Price(1e-6, 2e-6)
    assert listing_of(ENDPOINTS, Routing(only=("elsewhere",))).price is None
    assert listing_of(ENDPOINTS, Routing()).slugs == {"Moonshot AI": "moonshotai/int4", "Chutes": "chutes"}


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"data": {"endpoints": {"a": 1}}}'])
def test_a_list_that_cannot_be_read_says_nothing(content: bytes | None):
    listing = listing_of(content, Routing())
    assert (listing.price, dict(listing.slugs)) == (None, {})
