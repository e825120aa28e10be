"""A headless Chromium, driven over its DevTools protocol on a loopback socket: no driver, no browser library."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import absent

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip
DEADLINE_S = 60.0


def chromium() -> str:
    """The browser; the test is skipped, and says so, where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        absent("chromium is missing: apt-get install chromium")
    return found


class Browser:
    """One page of one browser. What goes wrong in the page is in `problems`, what it asks for in `requests`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse):
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session = ""
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        """Read what the browser says, until it is gone."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
                continue
            method, params = said["method"], said.get("params", {})
            if method == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"])[:500])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"])[:500])
            elif method == "Log.entryAdded":
                self.problems.append(params["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            elif method == "Page.loadEventFired":
                self._loaded.set()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(
            {"id": number, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        )
        said = await asyncio.wait_for(answer, DEADLINE_S)
        assert "error" not in said, said
        return said["result"]

    async def start(self) -> None:
        """A page with the network switched off."""
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable")
        await self.ask(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    async def open(self, path: Path, *, fragment: str = "") -> None:
        self._loaded.clear()
        await self.ask("Page.navigate", url=path.resolve().as_uri() + fragment)
        await asyncio.wait_for(self._loaded.wait(), DEADLINE_S)

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited where it is a promise."""
        said = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, json.dumps(said["exceptionDetails"])[:1000]
        return said["result"].get("value")

    async def size(self, width: int, height: int = 900) -> None:
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def media(self, scheme: str = "light", kind: str = "screen") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.ask("Emulation.setEmulatedMedia", media=kind, features=features)

    async def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                           **({"text": text} if text and kind == "keyDown" else {}))  # fmt: skip

    async def screenshot(self, path: Path, *, whole: bool = True, clip: dict[str, float] | None = None) -> None:
        more: dict[str, Any] = {"clip": {**clip, "scale": 1}} if clip else {}
        said = await self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole or bool(clip), **more)
        path.write_bytes(base64.b64decode(said["data"]))

    async def pdf(self) -> bytes:
        return base64.b64decode((await self.ask("Page.printToPDF", printBackground=True))["data"])


def browse(steps: Callable[[Browser], Awaitable[Any]]) -> Any:
    """Run steps with a browser of their own, which is gone afterwards."""
    program = chromium()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return asyncio.run(_browse(Path(folder) / "DevToolsActivePort", steps))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _browse(port_file: Path, steps: Callable[[Browser], Awaitable[Any]]) -> Any:
    for _ in range(int(DEADLINE_S * 20)):
        if port_file.exists() and len(port_file.read_text().splitlines()) == 2:
            break
        await asyncio.sleep(0.05)
    port, path = port_file.read_text().splitlines()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0) as socket,
    ):
        browser = Browser(socket)
        listening = asyncio.create_task(browser.listen())
        try:
            await browser.start()
            return await steps(browser)
        finally:
            listening.cancel()
