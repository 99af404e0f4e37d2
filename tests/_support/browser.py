"""A headless Chromium, driven over its debugging pipe: no port, no driver, no package."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """Commands and events of the DevTools protocol, one page at a time."""

    def __init__(self, program: str, profile: Path) -> None:
        down, self._out = os.pipe()
        self._in, up = os.pipe()
        reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (down, up))

        def connect() -> None:
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (down, up, reads, writes):
            os.close(fd)
        self._buffer = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []
        self._session = self._url = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, file: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file, unless it is the open one, and lay it out as a device of this size does."""
        self.open_url(file.resolve().as_uri(), width=width, height=height, dark=dark)

    def open_url(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Likewise an address."""
        self.show(width=width, height=height, dark=dark)
        if url == self._url:
            return
        self._url = url
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def show(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Lay out what is open as a device of this size shows it, without loading it again."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Whatever the page logged, CSP violations included, and what it tried to fetch."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled"):
                found.append(json.dumps(params))
            elif event.get("method") == "Network.requestWillBeSent":
                url = params["request"]["url"]
                ours = url.startswith(("data:", "http://127.0.0.1:"))
                if params["type"] != "Document" and not ours:
                    found.append(f"fetched {url}")
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._out)
        os.close(self._in)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has gone"
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        parsed: dict[str, Any] = json.loads(message)
        return parsed


def find_browser() -> str:
    """Find the program; skip the test if none is installed."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no headless browser is installed (looked for {', '.join(NAMES)})")
    return program
