"""A real browser without a window: Debian's Chromium, told what to do by the DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carla_run.signals import wait_or_kill
from tests.crowd import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")


class Tab:
    """One page in the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def see(self, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Have a screen of this size, in light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script: str) -> Any:
        """Return what an expression comes to."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str) -> Any:
        """Return what an expression comes to, once that is something."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"waited in vain for {script}: {self.run('document.body.innerText')}"
            time.sleep(0.1)
        return found

    def screenshot(self, path: Path | None = None, whole: bool = False) -> bytes:
        """Return a PNG of the window, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        picture = base64.b64decode(taken["data"])
        if path is not None:
            path.write_bytes(picture)
        return picture


class Browser:
    """Chromium with a profile of its own."""

    def __init__(self, profile: str) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def as_3_and_4() -> None:
            os.dup2(theirs_in, 100)
            os.dup2(theirs_out, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=as_3_and_4,  # noqa: PLW1509 (nothing but dup2)
            close_fds=False,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._read, self._asked = b"", 0
        self.problems: list[str] = []
        """Complaints of the pages: errors of scripts, and requests that their policy forbade."""

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        self._asked += 1
        asked = {"id": self._asked, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while (answer := self._next()).get("id") != self._asked:
            self._hear(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def tab(self) -> Tab:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        return tab

    def close(self) -> None:
        os.close(self._out)  # its end ends the browser
        wait_or_kill(self._process, PATIENCE_S)
        os.close(self._in)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._read += part
        message, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _hear(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.problems.append(event["params"]["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            yield browser
        finally:
            browser.close()
