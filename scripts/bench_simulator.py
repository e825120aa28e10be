"""How many replies a second the simulated server gives: `python scripts/bench_simulator.py [REPLIES] [CONNECTIONS]`.

The server (scenario `fast`) runs in a process of its own, the client here. What counts is the server's CPU time a
reply: on a shared machine the rate by the clock says more about the neighbours.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp  # noqa: TID251 - the client here is the yardstick, not the tool


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(url: str, replies: int, connections: int) -> int:
    """Ask `replies` times over `connections` connections; gives the bytes that came."""
    came = 0

    async def worker(session: aiohttp.ClientSession, start: int) -> None:
        nonlocal came
        for i in range(start, replies, connections):
            body = {
                "model": "moonshotai/kimi-k2.5",
                "messages": [{"role": "user", "content": f"question {i}"}],
                "max_tokens": 2048,
                "provider": {"only": ["chutes"]},
            }
            async with session.post(f"{url}/chat/completions", data=json.dumps(body)) as response:
                came += len(await response.read())
                assert response.status == 200

    headers = {"Authorization": "Bearer bench"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
        await asyncio.gather(*(worker(session, start) for start in range(connections)))
    return came


def main() -> None:
    replies, connections = (int(n) for n in (sys.argv[1:] + ["12000", "2000"][len(sys.argv) - 1 :])[:2])
    wanted, (_, hard) = connections + 256, resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with tempfile.TemporaryDirectory() as folder:
        for ledger in ((), ("--ledger", f"{folder}/ledger.jsonl")):
            command = [sys.executable, "-m", "toolkit", "simulate", "--scenario", "fast", *ledger]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
                try:
                    assert server.stdout is not None
                    url = server.stdout.readline().decode().strip()
                    before, began = cpu_s(server.pid), time.perf_counter()
                    came = asyncio.run(ask(url, replies, connections))
                    took, spent = time.perf_counter() - began, cpu_s(server.pid) - before
                finally:
                    server.terminate()
            print(
                f"{replies} replies of {came // replies:,} bytes over {connections} connections"
                f"{', ledger in a file' if ledger else ''}: {replies / took:,.0f}/s by the clock; server "
                f"{1e6 * spent / replies:.0f} us of CPU a reply = {replies / spent:,.0f}/s on one core"
            )


if __name__ == "__main__":
    main()
