"""A server that says the key back in everything it sends: after a run the key is nowhere, in no dress."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from toolkit.store.journal import count_entries
from toolkit.store.workspace import Dataset

from .conftest import write_prompts
from .server import Scripted, Step, completion, json_reply
from .test_crash import wait_for
from .test_secrecy import DRESSES, KEY

Server = tuple[Scripted, str]
SECRET = KEY[9:]
"""Without the beginning that all such keys share."""


# --- looking for it -------------------------------------------------------------------------------


def dresses_of(word: str) -> set[str]:
    """What `word` looks like, in whatever it stands; small letters throughout."""
    raw = word.encode()
    forms = {word, json.dumps(word)[1:-1], word.replace("/", "\\/"), raw.hex(), word[::-1], quote(word, safe="")}
    forms |= {"".join(form % ord(letter) for letter in word) for form in ("\\u%04x", "\\\\u%04x", "%%%02x", "&#%d;")}
    for shift in range(3):
        # Wherever it stands in a longer text, these letters of its base64 are always the same.
        coded = base64.b64encode(b"\0" * shift + raw).decode()
        core = coded[4 if shift else 0 :][: (len(raw) - 3) // 3 * 4 - 4]
        forms |= {core, core.replace("+", "-").replace("/", "_")}
    return {form.casefold() for form in forms} | {"\0".join(word).casefold()}


LOOKED_FOR = sorted(dresses_of(SECRET) | dresses_of(SECRET[:16]))
"""The whole of it, and enough of its beginning: a cut key is still most of a key."""


def found_in(name: str, content: str) -> list[str]:
    folded = content.casefold()
    return [f"{name}: {form}" for form in LOOKED_FOR if form in folded]


def texts_under(root: Path) -> Iterator[tuple[str, str]]:
    """Every file's name and bytes; of Parquet files, every value as well."""
    for path in sorted(root.rglob("*")):
        yield "name", str(path.relative_to(root))
        if path.is_file():
            yield str(path), path.read_bytes().decode("latin-1")
            if path.suffix == ".parquet":
                table = pq.read_table(path)
                yield f"{path}: schema", str(table.schema.metadata)
                yield f"{path}: values", json.dumps(table.to_pylist(), default=str, ensure_ascii=False)


def check_nowhere(root: Path, **said: str) -> None:
    texts = [*texts_under(root), *said.items()]
    assert [hit for name, content in texts for hit in found_in(name, content)] == []


@pytest.mark.parametrize("dress", [d[1] for d in DRESSES], ids=[d[0] for d in DRESSES])
def test_what_is_looked_for_is_found_in_every_dress(tmp_path: Path, dress: str):
    (tmp_path / "a").write_text(f"before {dress} after", encoding="utf-8")
    with pytest.raises(AssertionError):
        check_nowhere(tmp_path)


def test_what_is_looked_for_is_found_in_a_shard_and_in_what_was_said(tmp_path: Path):
    check_nowhere(tmp_path, out="nothing")
    with pytest.raises(AssertionError):
        check_nowhere(tmp_path, out=f"bad key {KEY}")
    import pyarrow as pa

    pq.write_table(pa.table({"payload": [f"{{'a': '{KEY}'}}"]}), tmp_path / "part.parquet", compression="zstd")
    with pytest.raises(AssertionError):
        check_nowhere(tmp_path)


# --- a server that says it ------------------------------------------------------------------------


def with_dress(body: dict[str, Any], dress: str) -> bytes:
    """The body with MARK replaced in its raw text, so that escapes stay escapes."""
    return json.dumps(body).replace("MARK", json.dumps(dress)[1:-1] if "\0" in dress else dress).encode()


def replying(body: bytes, status: int = 200, **headers: str) -> Step:
    return lambda _: web.Response(body=body, status=status, headers=headers, content_type="application/json")


def torn(request: web.Request) -> web.Response:
    """No HTTP at all: parsers like to quote the line that they did not understand."""
    assert request.transport is not None
    request.transport.write(b"HTTP/1.1 200 OK\r\n" + KEY.encode() + b"\r\n\x00: " + KEY.encode() + b"\r\n\r\n")
    request.transport.close()
    return web.Response()


def echoes() -> dict[str, Step]:
    """By prompt, a reply that says the key."""
    steps: dict[str, Step] = {}
    error = {"error": {"code": 400, "message": "bad: MARK", "metadata": {"raw": "MARK", "provider_name": "MARK"}}}
    for name, dress in DRESSES:
        steps[f"answer, {name}"] = replying(with_dress(completion(text="MARK"), dress))
        for status in (400, 502):
            steps[f"error {status}, {name}"] = replying(with_dress(error, dress), status)
        steps[f"page, {name}"] = replying(f"<html>{dress}</html>".encode(), 524)
    for field in ("id", "provider", "model"):
        steps[f"answer by {field}"] = json_step(completion(**{field: KEY}))
    headers = {"X-Echo": KEY, "Retry-After": KEY, "X-Generation-Id": KEY}
    steps["headers of an answer"] = lambda _: json_reply(completion(), **headers)
    steps["headers of an error"] = lambda _: json_reply({"error": {"code": 429, "message": "no"}}, 429, **headers)
    steps["redirect"] = replying(b"", 302, Location=f"http://127.0.0.1:1/?key={quote(KEY)}")
    steps["torn"] = torn
    return steps


def json_step(body: Any) -> Step:
    return lambda _: json_reply(body)


@pytest.fixture
def echoing(scripted: Server) -> Server:
    server, url = scripted
    server.steps = {text: [step] for text, step in echoes().items()}
    server.pages["/key"] = lambda: {"data": {"label": KEY, "limit_remaining": 5, "note": KEY}}
    listed = {"provider_name": KEY, "tag": KEY, "pricing": {"prompt": "0.000001", "completion": "0.00001"}}
    server.pages["/models/moonshotai/kimi-k2.5/endpoints"] = lambda: {"data": {"endpoints": [listed]}}
    return server, url


def command(root: Path, *words: str) -> subprocess.Popen[str]:
    """`tokenproof …` with the key in its environment, and nowhere else."""
    return subprocess.Popen(
        [sys.executable, "-m", "toolkit", *words, "--root", str(root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPENROUTER_API_KEY": KEY},
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def shown_of(pid: int) -> str:
    """What other users of the machine see of a process."""
    names = ("cmdline", "comm", "stat", "status")
    return "".join((Path("/proc") / str(pid) / name).read_bytes().decode("latin-1") for name in names)


@pytest.mark.slow
def test_the_key_is_nowhere_after_runs_that_end_are_killed_or_refused(
    dataset: Dataset, echoing: Server, tmp_path: Path
):
    server, url = echoing
    # Taken in turns: a run that has no answer yet gives up after a few of the others.
    texts = [text for i, echo in enumerate(echoes()) for text in (f"q{i}", echo)]
    write_prompts(dataset, texts)
    (tmp_path / "tokenproof.toml").write_text(
        f'[endpoints.openrouter]\nurl = "{url}/api/v1"\nconcurrency = 8\nmax_tries = 2\ntimeout_s = 10\n'
    )
    # Killed: the journal and half a run's files lie there.
    process = command(tmp_path, "generate", "B3")
    wait_for(lambda: count_entries(dataset.journal) > 12 or process.poll() is not None)
    shown = shown_of(process.pid) if process.poll() is None else ""
    process.send_signal(signal.SIGKILL)
    _, out, err = finished(process)
    assert shown, out + err
    check_nowhere(tmp_path, shown=shown, out=out, err=err)
    # To its end.
    code, out, err = finished(command(tmp_path, "generate", "B3"))
    assert code == 3, err
    assert "secret_echoed" in out
    assert all(server.seen[text] for text in texts)
    check_nowhere(tmp_path, out=out, err=err)
    # Refused in the server's words.
    server.steps = {}
    server.default = [json_step({"error": {"code": 401, "message": f"no such key: {KEY}"}})]
    code, out, err = finished(command(tmp_path, "generate", "B3", "--format", "json"))
    assert code == 3, err
    assert "no such key: ***" in json.loads(out)["stopped"]
    check_nowhere(tmp_path, out=out, err=err)
    for words in (("status", "B3", "--format", "json"), ("audit", "B3"), ("preflight", "B3")):
        code, out, err = finished(command(tmp_path, *words))
        assert "Traceback" not in err

        check_nowhere(tmp_path, out=out, err=err)
    assert (tmp_path / "reports" / "B3" / "index.html").is_file()
