"""A real Chromium without a window, driven through its debugging pipe: no port, no driver."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ANSWER_S = 60.0
_END_S = 20.0


class Browser:
    """One page in one browser; what it complained about is in ``complaints``."""

    def __init__(self, to: int, back: int) -> None:
        self.complaints: list[str] = []
        self._to, self._back = to, back
        self._pending = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            said = self._read()
            if said.get("id") == self._number:
                assert "error" not in said, f"{method}: {said['error']}"
                result: dict[str, Any] = said["result"]
                return result

    def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show a file or an address in a window of so many CSS pixels, narrow as on a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.absolute().as_uri())
        until = time.monotonic() + _ANSWER_S
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            assert time.monotonic() < until, "the page did not load"
            self._read()

    def open_extension(self, folder: Path, page: str) -> None:
        """Install an extension and show a page of its, instead of the one that there was."""
        self._session = ""  # the browser itself is asked
        number = self.call("Extensions.loadUnpacked", path=str(folder))["id"]
        url = f"chrome-extension://{number}/{page}"
        target = self.call("Target.createTarget", url=url)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        until = time.monotonic() + _ANSWER_S
        while self.ask("location.href + document.readyState") != f"{url}complete":
            assert time.monotonic() < until, "the page did not load"

    def ask(self, expression: str, *, wait: bool = False) -> Any:
        """Return the value of a JavaScript expression on the page; ``wait``: it is a promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, file: Path) -> bytes:
        """Write a PNG of the whole page, and return it."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        png = base64.b64decode(taken["data"])
        file.write_bytes(png)
        return png

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            data = os.read(self._back, 1 << 16)
            assert data, "the browser ended"
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        if "method" in said:
            self._events.append(said)
            if said["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                self.complaints.append(json.dumps(said["params"]))
            elif said["method"] == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
        return said


def find_browser() -> str:
    """Return the path of a Chromium; ``setup.sh`` installs one where there is none."""
    found = [path for path in map(shutil.which, _NAMES) if path]
    assert found, f"none of {', '.join(_NAMES)} is installed: run make setup"
    return found[0]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser for the block; it ends with us, too."""
    to_read, to = os.pipe()
    back, back_write = os.pipe()

    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        command = [find_browser(), "--headless", "--remote-debugging-pipe", "--disable-gpu"]
        command += ["--enable-unsafe-extension-debugging"]  # tests may install extensions
        command += ["--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []  # it refuses to be root with one
        wire = f'exec "$@" 3<&{to_read} 4>&{back_write}'  # the protocol's descriptors
        process = subprocess.Popen(
            ["bash", "-c", wire, "browser", *command, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read, back_write),
            env={**os.environ, "HOME": profile},
        )
        os.close(to_read)
        os.close(back_write)
        try:
            yield Browser(to, back)
        finally:
            os.close(to)  # it ends when the pipe does
            os.close(back)
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_S)
