"""Make the README's picture: ``python -m tests.host_broker.dashboard.picture FILE``.

A real run: a broker, virtual boards that the rig flashes, checks and lets send telemetry, and a
real browser that looks on, all started here.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.boards.reports.browser import find_browser
from tests.host_broker.net.broker_process import broker, motemq

_RUN_S = 900.0
_WIDTH, _HEIGHT = 1280, 800
_BOARDS = ("--virtual", "esp32:2")
_CHECKS = "pubsub_up,pubsub_down,ping,stream_up,will_abrupt,heap_free"


def make(file: Path) -> None:
    """Write the picture, taken when the telemetry of the run is there."""
    with tempfile.TemporaryDirectory(prefix="motemq-picture-") as name, sync_playwright() as play:
        out = Path(name)
        options = ("--data", str(out / "broker"), "--set", f"http.rig={out}")
        browser = play.chromium.launch(
            executable_path=find_browser(), chromium_sandbox=os.geteuid() != 0
        )
        with broker("--listen", "auto://127.0.0.1:0", *options) as running:
            at = f"127.0.0.1:{running.ports['auto']}"
            page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
            page.goto(f"http://{at}/")
            boards = (*_BOARDS, "--fmqp", at, "--lightmq", at, "--checks", _CHECKS)
            rig = subprocess.Popen(motemq("rig", "run", *boards, "--out", name))
            try:
                page.locator(".busiest >> text=telemetry/").first.wait_for(timeout=_RUN_S * 1000)
                page.screenshot(path=file)
            finally:
                rig.terminate()
                rig.wait(_RUN_S)
        browser.close()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
