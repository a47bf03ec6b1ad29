"""A real headless Chromium, driven over its DevTools protocol: opens one page, reports what happened.

Each visit has a browser and a profile folder of its own, both gone afterwards. Starts nothing but that one process.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip
_DEADLINE_S = 60


@dataclass
class Visit:
    """values: what each expression gave, in order. requests: URLs other than the page's own. faults: of scripts.
    shots: a picture for each Shot among the expressions."""

    values: list[Any] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    picture: bytes = b""
    shots: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Press:
    """A key that is really pressed, in the place of an expression: `Tab`, `Enter`, `ArrowUp`, or one character."""

    key: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture taken in the place of an expression. whole: of the page's full length."""

    whole: bool = False


Step = str | Press | Shot
_KEYS = {"Tab": 9, "Enter": 13, " ": 32, "Home": 36, "End": 35, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37,
         "ArrowRight": 39, "Backspace": 8}  # fmt: skip


def visit(
    page: Path | str,
    expressions: tuple[Step, ...] = (),
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    media: str = "screen",
    whole: bool = False,
) -> Visit:
    """Opens a file or a URL, evaluates expressions in it in turn, and takes a picture (`whole`: of its full length)."""
    assert BINARY is not None
    with tempfile.TemporaryDirectory(prefix="overload-browser-", ignore_cleanup_errors=True) as profile:
        command = [BINARY, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, start_new_session=True, **quiet) as browser:
            try:
                session = _Session(page, width, height, dark, media)
                return asyncio.run(asyncio.wait_for(session.run(Path(profile), expressions, whole), _DEADLINE_S))
            finally:
                os.killpg(browser.pid, signal.SIGKILL)


class _Session:
    def __init__(self, page: Path | str, width: int, height: int, dark: bool, media: str) -> None:
        self._url = page if isinstance(page, str) else page.resolve().as_uri()
        self._size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._media = {"media": media, "features": [scheme]}
        self._numbers = itertools.count(1)
        self._seen = Visit()
        self._loaded = False

    async def run(self, profile: Path, expressions: tuple[Step, ...], whole: bool) -> Visit:
        port = await _port(profile)
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                targets = await answer.json(content_type=None)
            url = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
            async with http.ws_connect(url, max_msg_size=0) as self._socket:
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await self._ask(f"{domain}.enable")
                await self._ask("Emulation.setDeviceMetricsOverride", **self._size)
                await self._ask("Emulation.setEmulatedMedia", **self._media)
                await self._ask("Page.navigate", url=self._url)
                while not self._loaded:
                    self._note(await self._socket.receive_json())
                for step in expressions:
                    await self._take(step)
                self._seen.picture = await self._picture(whole)
        return self._seen

    async def _take(self, step: Step) -> None:
        if isinstance(step, str):
            self._seen.values.append(await self._value(step))
        elif isinstance(step, Shot):
            self._seen.shots.append(await self._picture(step.whole))
        else:
            for _ in range(step.times):
                await self._press(step.key)

    async def _press(self, key: str) -> None:
        code = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0]))}
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        await self._ask("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        await self._ask("Input.dispatchKeyEvent", type="keyUp", **code)

    async def _picture(self, whole: bool) -> bytes:
        picture = await self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(picture["data"])

    async def _value(self, expression: str) -> Any:
        answer = await self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith("data:") and url.partition("#")[0] != self._url.partition("#")[0]:
                self._seen.requests.append(url)
        elif method == "Runtime.exceptionThrown":
            self._seen.faults.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self._seen.faults.append(params["entry"]["text"])


async def _port(profile: Path) -> int:
    """The port that the browser chose, once it has written it down."""
    told = profile / "DevToolsActivePort"
    for _ in range(600):
        if told.exists() and (lines := told.read_text().splitlines()):
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise AssertionError("the browser did not start")
