"""CPU and memory of `generate`, beside a bare aiohttp loop and the `openai` package, against one server in one run.

python scripts/bench_generate.py [--replies 20000] [--long 60000] [--in-flight 2000] [--runs 3] [--prompts 1000000]

Replies of 8 KB come after 0.05 to 0.5 s. Every part runs in a process of its own and counts that process's CPU from its
first request on, so that imports and the vocabulary are no part of it; ours goes on until shards.json lists the rows.
`sealing` is the part of making rows of replies, which goes on while the run does, and of listing them; `run` is all
else. `parquet` is that part of sealing in which Arrow tables are encoded, compressed and written: the whole is told
with and without it, for a loop that keeps its replies in memory, or as lines, has nothing of the kind. All use the same
event loop: uvloop where it is installed. What is to be compared is the CPU of parts in one run: rates and times say
more about the machine's other users.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

MODEL = "moonshotai/kimi-k2.5"
KEY = "sk-or-v1-0123456789abcdef-a-key-for-benches"
BODIES = 4_096
"""Distinct bodies: 32 MB, more than any compressor looks back."""

Figures = dict[str, Any]


# --- the server ---------------------------------------------------------------------------------------


def make_bodies() -> list[bytes]:
    """Bodies as OpenRouter sends them, of 8 KB each. The text is the standard library's own: prose and code.

    Reasoning stands there twice, as it does in real bodies, so that 5.4 KB of text go into the ids.
    """
    paths = sorted(Path(os.__file__).parent.glob("*.py")) + sorted(Path(os.__file__).parent.glob("[a-z]*/*.py"))
    source = "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)
    draw = random.Random(7)
    return [_body(i, source, draw.randrange(len(source) - 8_192)) for i in range(BODIES)]


def _body(i: int, source: str, at: int) -> bytes:
    reasoning, content = source[at : at + 1_700], source[at + 1_700 : at + 5_200]
    details = [{"type": "reasoning.text", "text": reasoning, "format": None, "index": 0}]
    message = {"role": "assistant", "content": content, "reasoning": reasoning, "reasoning_details": details}
    return orjson.dumps({
        "id": f"gen-1769472000-{i:020d}", "provider": "Chutes", "model": f"{MODEL}-0127", "object": "chat.completion",
        "created": 1769472000, "system_fingerprint": None,
        "choices": [{
            "index": 0, "finish_reason": "stop", "native_finish_reason": "stop", "logprobs": None, "message": message,
        }],
        "usage": {
            "prompt_tokens": 30, "completion_tokens": 1400, "total_tokens": 1430, "cost": 0.0031,
            "completion_tokens_details": {"reasoning_tokens": 450},
        },
    })  # fmt: skip


class Answering(asyncio.Protocol):
    """As little of HTTP as a server can do with: bodies made before, each after its wait, nothing else."""

    def __init__(self, replies: list[bytes]):
        self._replies = replies
        self._received = b""
        self._count = random.Random(id(self)).randrange(len(replies))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, rest = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if b"\r\n\r\n" in self._received and len(rest) >= length:
            self._received = b""
            self._count += 1
            reply = self._replies[self._count % len(self._replies)]
            asyncio.get_running_loop().call_later(random.uniform(0.05, 0.5), self._transport.write, reply)


async def serve() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    replies = [head % len(body) + body for body in make_bodies()]
    server = await asyncio.get_running_loop().create_server(lambda: Answering(replies), "127.0.0.1", 0, backlog=4_096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


# --- the clients --------------------------------------------------------------------------------------


def question(i: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Write part {i} of a module for the standard library, and explain it."}]


async def in_workers(ask: Callable[[int], Awaitable[None]], replies: int, in_flight: int) -> None:
    numbers = iter(range(replies))

    async def worker() -> None:
        for i in numbers:
            await ask(i)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def bare(url: str, replies: int, in_flight: int) -> None:
    """What a careful programmer writes who only wants the texts in memory."""
    import aiohttp  # noqa: TID251 - the yardstick

    connector, headers = aiohttp.TCPConnector(limit=0), {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask(i: int) -> None:
            body = orjson.dumps({"model": MODEL, "messages": question(i), "max_tokens": 8192})
            async with session.post(f"{url}/chat/completions", data=body) as response:
                reply = orjson.loads(await response.read())
            assert reply["choices"][0]["message"]["content"]

        await in_workers(ask, replies, in_flight)


async def openai_client(url: str, replies: int, in_flight: int) -> None:
    """What the package's own documentation shows; its pool has room for 1,000 connections."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key=KEY) as client:

        async def ask(i: int) -> None:
            messages: Any = question(i)
            reply = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8192)
            assert reply.choices[0].message.content

        await in_workers(ask, replies, in_flight)


def measured(work: Callable[[], object], replies: int) -> Figures:
    """Work, and its CPU and time a reply."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    cpu, took = time.process_time() - cpu, time.perf_counter() - began
    return {"replies": replies, "cpu_us": 1e6 * cpu / replies, "replies_per_s": replies / took}


def ours(url: str, replies: int, in_flight: int, folder: Path) -> Figures:
    """`generate` to the last shard, over a dataset that was made for it."""
    from toolkit import sealing
    from toolkit.config import parse_settings
    from toolkit.contract import read_contract
    from toolkit.generate import run
    from toolkit.prompt import render_prompt
    from toolkit.store.shard_writer import ShardFile
    from toolkit.store.shards import read_live
    from toolkit.store.workspace import Workspace
    from toolkit.vocabulary import load_vocabulary

    os.environ["BENCH_KEY"] = KEY
    settings = parse_settings(
        f'[endpoints.bench]\nurl = "{url}"\nconcurrency = {in_flight}\nkey_env = "BENCH_KEY"\n'.encode(), "bench"
    )
    dataset = Workspace(folder).dataset_named("BENCH")
    dataset.folder.mkdir(parents=True)
    with dataset.prompts.open("wb") as file:
        for i in range(replies):
            file.write(orjson.dumps({"id": f"q{i}", "messages": question(i)}) + b"\n")
    contract = read_contract("kimi-k2.5")
    vocabulary = load_vocabulary(contract)
    render_prompt(contract, vocabulary, question(0), None, contract.default_mode)  # imports what renders
    sealed = count_cpu(sealing.Alongside, "_make_rows", "seal")
    written = count_cpu(ShardFile, "__init__", "add", "finish")
    figures: Figures = {}
    with watched_memory(figures):
        figures |= measured(
            lambda: run.generate(dataset, settings.defaults, settings.endpoint("bench"), contract, vocabulary), replies
        )
    assert read_live(dataset).rows == replies
    figures["sealing_us"] = 1e6 * sum(sealed) / replies
    figures["run_us"] = figures["cpu_us"] - figures["sealing_us"]
    figures["parquet_us"] = 1e6 * sum(written) / replies
    figures["without_parquet_us"] = figures["cpu_us"] - figures["parquet_us"]
    figures["bytes_per_row"] = sum(path.stat().st_size for path in dataset.shards.iterdir()) / replies
    return figures


def count_cpu(kind: type, *names: str) -> list[float]:
    """Have the CPU of these methods counted, that of one within another once; seconds of each call."""
    spent: list[float] = []
    inside: list[str] = []

    def counted(name: str) -> None:
        real = getattr(kind, name)

        def method(*given: Any) -> Any:
            if inside:
                return real(*given)
            inside.append(name)
            began = time.process_time()
            try:
                return real(*given)
            finally:
                spent.append(time.process_time() - began)
                inside.clear()

        setattr(kind, name, method)

    for name in names:
        counted(name)
    return spent


@contextmanager
def watched_memory(figures: Figures) -> Iterator[None]:
    """Resident megabytes of this process, four times a second."""
    seen: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tenths = [seen[min(len(seen) - 1, i * len(seen) // 10)] for i in range(11)] if seen else []
        figures["rss_mb"] = [round(mb) for mb in tenths]
        figures["rss_peak_mb"] = round(max(seen, default=0.0))


def prompts(url: str, lines: int, folder: Path) -> Figures:
    """A file of many prompts: how fast it is checked, what it takes, when the first request is on its way.

    `first_request_s` counts from the start of a run, so that a check is part of it.
    """
    from toolkit.config import parse_settings
    from toolkit.contract import read_contract
    from toolkit.errors import TransientError
    from toolkit.generate.run import Surroundings, generate
    from toolkit.store.prompts import check_prompts
    from toolkit.store.workspace import Workspace
    from toolkit.vocabulary import load_vocabulary

    contract = read_contract("kimi-k2.5")
    vocabulary = load_vocabulary(contract)
    dataset = Workspace(folder).dataset_named("BENCH")
    dataset.folder.mkdir(parents=True)
    with dataset.prompts.open("wb") as file:
        for i in range(lines):
            file.write(orjson.dumps({"id": f"q{i}", "messages": question(i)}) + b"\n")
    began = time.perf_counter()
    index = check_prompts(dataset.prompts, modes=contract.modes)
    checked_s = time.perf_counter() - began
    held = sum(a.nbytes for a in (index.offsets, index.ids.first, index.ids.second) if a is not None)
    held += sum(sys.getsizeof(block) for block in index.blocks)
    del index

    class First:
        """Notes when the first request comes, and breaks the run off."""

        at = 0.0

        async def post(self, *_: object, **__: object) -> Any:
            self.at = self.at or time.perf_counter()
            raise TransientError("enough", reason="connection_refused")

        async def get(self, *_: object, **__: object) -> Any:
            raise TransientError("nothing", reason="connection_refused")

    os.environ["BENCH_KEY"] = KEY
    settings = parse_settings(
        f'[endpoints.bench]\nurl = "{url}"\nmax_tries = 1\nkey_env = "BENCH_KEY"\n'.encode(), "bench"
    )
    first = First()
    began = time.perf_counter()
    generate(
        dataset, settings.defaults, settings.endpoint("bench"), contract, vocabulary,
        surroundings=Surroundings(transport=first),
    )  # fmt: skip
    return {
        "lines": lines, "lines_per_s": lines / checked_s, "bytes_per_line": held / lines,
        "check_s": checked_s, "first_request_s": first.at - began,
    }  # fmt: skip


# --- all together -------------------------------------------------------------------------------------


def part(options: argparse.Namespace) -> Figures:
    """One part, in this process."""
    raise_files(options.in_flight)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.part == "ours":
            return ours(options.url, options.replies, options.in_flight, Path(folder))
        if options.part == "prompts":
            return prompts(options.url, options.prompts, Path(folder))
    from toolkit.generate.loop import run_async  # the same loop for all: uvloop where it is installed

    client = {"bare": bare, "openai": openai_client}[options.part]
    return measured(lambda: run_async(client(options.url, options.replies, options.in_flight)), options.replies)


def raise_files(in_flight: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(in_flight + 256, hard), hard))


def run_part(name: str, url: str, replies: int, options: argparse.Namespace) -> Figures:
    command = [
        sys.executable, __file__, "--part", name, "--url", url, "--replies", str(replies),
        "--in-flight", str(options.in_flight), "--prompts", str(options.prompts),
    ]  # fmt: skip
    command += ["--folder", str(options.folder)] if options.folder else []
    figures: Figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(name, json.dumps(figures), file=sys.stderr, flush=True)
    return figures


def median(runs: list[Figures], key: str) -> float:
    return float(statistics.median(figures[key] for figures in runs))


def all_parts(options: argparse.Namespace) -> Figures:
    raise_files(options.in_flight)
    with subprocess.Popen([sys.executable, __file__, "--part", "serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            runs: dict[str, list[Figures]] = {"bare": [], "ours": [], "openai": []}
            for _ in range(options.runs):
                for name, into in runs.items():
                    asked = max(options.replies // 20, 1) if name == "openai" else options.replies
                    into.append(run_part(name, url, asked, options))
            long = run_part("ours", url, options.long, options) if options.long else None
            checked = run_part("prompts", url, 0, options) if options.prompts else None
        finally:
            server.terminate()
    figures: Figures = {
        f"{name}_{key}": round(median(into, key)) for name, into in runs.items() for key in ("cpu_us", "replies_per_s")
    }
    for key in ("run_us", "sealing_us", "parquet_us", "without_parquet_us"):
        figures[f"ours_{key}"] = round(median(runs["ours"], key))
    for name, key in (("ours", "cpu_us"), ("ours_without_parquet", "without_parquet_us")):
        ratios = [a[key] / b["cpu_us"] for a, b in zip(runs["ours"], runs["bare"], strict=True)]
        figures[f"{name}_times_bare"] = round(statistics.median(ratios), 2)
    figures["openai_times_ours"] = round(figures["openai_cpu_us"] / figures["ours_cpu_us"], 2)
    figures["shard_bytes_per_row"] = round(median(runs["ours"], "bytes_per_row"))
    figures["rss_mb"] = {str(options.replies): runs["ours"][-1]["rss_mb"]}
    figures["rss_peak_mb"] = {str(options.replies): max(f["rss_peak_mb"] for f in runs["ours"])}
    if long is not None:
        figures["rss_mb"][str(options.long)] = long["rss_mb"]
        figures["rss_peak_mb"][str(options.long)] = long["rss_peak_mb"]
    if checked is not None:
        figures["prompts"] = {key: round(value, 3) for key, value in checked.items()}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=20_000)
    parser.add_argument("--long", type=int, default=60_000, help="replies of one run more, for memory; 0: none")
    parser.add_argument("--in-flight", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=1_000_000, help="lines of prompts to check; 0: none")
    parser.add_argument("--folder", type=Path, help="where datasets are made and removed; the system's own otherwise")
    parser.add_argument("--part", choices=["serve", "bare", "openai", "ours", "prompts"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "serve":
        asyncio.run(serve())
        return
    json.dump(part(options) if options.part else all_parts(options), sys.stdout, indent=None if options.part else 2)
    print()


if __name__ == "__main__":
    main()
