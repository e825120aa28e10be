"""Keys and addresses: real-looking ones are counted, those of documentation are not. All are made up here."""

from __future__ import annotations

import base64
import json
import random
import string

import polars as pl
import pytest

from toolkit.audit.health.secrets import PATTERNS, count_addresses, find_secrets, looks_random


def drawn(seed: int, length: int, letters: str = string.ascii_letters + string.digits) -> str:
    draw = random.Random(seed)
    return "".join(draw.choice(letters) for _ in range(length))


TUTORIAL = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
    ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
"""The token that tutorials show."""

BASE32 = string.ascii_uppercase + "234567"
HEX = string.digits + "abcdef"


def web_token(seed: int) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return (
        f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': drawn(seed, 12), 'iat': 1700000000})}.{drawn(seed, 43)}"
    )


def key_block(seed: int, kind: str = "RSA ", newline: str = "\n") -> str:
    body = base64.b64encode(random.Random(seed).randbytes(600)).decode()
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    return newline.join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])


MADE = {
    "aws": lambda seed: "AKIA" + drawn(seed, 16, BASE32),
    "github": lambda seed: random.Random(seed).choice(("ghp_", "gho_", "ghs_")) + drawn(seed, 36),
    "gitlab": lambda seed: "glpat-" + drawn(seed, 20),
    "openai": lambda seed: (
        random.Random(seed).choice(("sk-", "sk-proj-", "sk-ant-api03-", "sk-or-v1-")) + drawn(seed, 48)
    ),
    "slack": lambda seed: (
        f"xoxb-{drawn(seed, 12, string.digits)}-{drawn(seed + 1, 12, string.digits)}-{drawn(seed, 24)}"
    ),
    "google": lambda seed: "AIza" + drawn(seed, 35),
    "stripe": lambda seed: "sk_live_" + drawn(seed, 24),
    "huggingface": lambda seed: "hf_" + drawn(seed, 34),
    "npm": lambda seed: "npm_" + drawn(seed, 36),
    "jwt": web_token,
    "private_key": lambda seed: key_block(seed, random.Random(seed).choice(("", "RSA ", "EC ", "OPENSSH "))),
}


def test_every_kind_is_tried() -> None:
    assert set(MADE) == set(PATTERNS)


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize(
    "around", ["{}", "key = '{}'\n", "Use {}, please.", "Authorization: Bearer {}", "密钥是{}。", "KEY={}"]
)
def test_keys_are_found_whatever_stands_around(kind: str, around: str) -> None:
    texts = pl.Series([around.format(MADE[kind](seed)) for seed in range(100)])
    found = find_secrets(texts)
    missed = [texts[i] for i in range(100) if kind not in found.kinds[i]]
    assert len(missed) <= 2, missed


def test_kinds_and_counts() -> None:
    texts = ["nothing", f"{MADE['aws'](1)} and {MADE['aws'](2)} and {MADE['github'](3)}", ""]
    found = find_secrets(pl.Series(texts))
    assert (found.counts.tolist(), found.kinds) == ([0, 3, 0], ["", "aws, github", ""])


def test_a_key_block_in_one_line_of_json() -> None:
    assert find_secrets(pl.Series([json.dumps({"key": key_block(4)})])).kinds == ["private_key"]


def test_a_key_of_hexadecimal_digits() -> None:
    assert find_secrets(pl.Series(["sk-" + drawn(9, 32, HEX)])).kinds == ["openai"]


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "AKIA" + "X" * 16,
        "sk-" + "x" * 48,
        "sk-your-api-key-goes-right-here-1234",
        "sk-1234567890abcdef1234567890abcdef",
        "sk-proj-..." + "." * 30,
        "export OPENAI_API_KEY=sk-<your key>",
        '<div class="sk-fading-circle-container-spinner-wrapper">',
        "a task-oriented-dialogue-system-with-2-parts-and-more",
        "risk-adjusted-return-on-capital-2024-final",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "github_pat_YOUR_TOKEN_GOES_HERE_PLEASE_REPLACE_IT_0123",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA...\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\n<your key>\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----\n" + "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7" * 3,
        TUTORIAL,
        "AIzaSyYOUR_API_KEY_HERE_xxxxxxxxxxxxxxx",
        "xoxb-your-token-here-please-replace-it",
        "hf_hub_download and hf_model_config_for_all_transformers",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "550e8400-e29b-41d4-a716-446655440000",
        base64.b64encode(random.Random(1).randbytes(3_000)).decode(),
        "KASIA and AKIABARA are names",
        "ASK-" + "a1" * 20,
    ],
)
def test_what_is_no_key(text: str) -> None:
    assert find_secrets(pl.Series([text])).kinds == [""]


def test_random_looks() -> None:
    assert looks_random(drawn(1, 20))
    assert not looks_random("1" * 10 + "a" * 10)
    assert not looks_random(drawn(1, 20, string.digits))
    assert not looks_random("")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Write to jane.doe+lists@gmail.com or to j@mit.edu.", 2),
        ("mailto:support@acme.co.uk", 1),
        ("<max.muster@firma.de>, 李雷 lilei@163.com", 2),
        ("jane@example.com, joe@sub.example.org, a@b.invalid, x@test.example", 0),
        ("user@domain.com your.name@company.com noreply@github.com", 0),
        ("git@github.com:owner/name.git", 0),
        ("postgres://admin:hunter2@db.acme.com:5432/app", 0),
        ("https://medium.com/@writer.name/post and https://x.com/a@b.com", 0),
        ("@app.route('/') @property @dataclass(frozen=True)", 0),
        ("q@k.transpose(-2, -1) x@y.to(device) a@b.T w@x.shape", 0),
        ("logo@2x.png icon@3x.png react@18.2.0 npm i left-pad@1.3.0", 0),
        ("@", 0),
        ("", 0),
    ],
)
def test_addresses(text: str, count: int) -> None:
    assert count_addresses(pl.Series(["nothing here", text])).tolist() == [0, count]
