"""A virtual ESP32's console by every plug with our own port, and given on by ``motemq bridge``."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boards.repl import Repl
from boards.virtual.board import VirtualBoard
from tests.boards.bridge_process import running as running_bridge

_TOOL_S = 90.0


def _tool(home: Path, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        capture_output=True,
        text=True,
        timeout=_TOOL_S,
        env={**os.environ, "XDG_CONFIG_HOME": str(home), "HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("way", ["socket", "pty", "rfc2217"])
def test_our_repl_by_every_way(running: VirtualBoard, way: str) -> None:
    with Repl.open(running.address.serial_urls[way], deadline_s=60) as repl:
        said = repl.exec("print(bytes(range(250, 256)))", deadline_s=60)
        assert said.strip() == r"b'\xfa\xfb\xfc\xfd\xfe\xff'"
    assert running.control.state() == {"state": "running", "boots": 1}


@pytest.mark.parametrize("way", ["pty", "rfc2217"])
def test_mpremote_through_an_exposed_port(running: VirtualBoard, tmp_path: Path, way: str) -> None:
    url = running.address.serial_urls[way]
    with running_bridge(
        "bridge", "--serial", url, "--listen", "0", "--rfc2217", "--insecure"
    ) as bridge:
        address = bridge.wait_for("listening on").split("listening on ")[1].split()[0]
        for _ in range(2):  # the port is free again after each
            said = _tool(
                tmp_path,
                *("mpremote", "connect", f"rfc2217://{address}", "resume", "eval", "6 * 7"),
            )
            assert said.strip() == "42"
        assert bridge.end() == 0


def test_esptool_resets_through_an_exposed_port(running: VirtualBoard, tmp_path: Path) -> None:
    """DTR and RTS go all the way: esptool, bridge, the board's own RFC 2217 server, its buttons."""
    url = running.address.serial_urls["rfc2217"]
    with running_bridge(
        "bridge", "--serial", url, "--baud", "115200", "--listen", "0", "--rfc2217", "--insecure"
    ) as bridge:
        address = bridge.wait_for("listening on").split("listening on ")[1].split()[0]
        # Not more than this: pyserial polls, and each of esptool's commands takes 0.2 s.
        said = _tool(
            tmp_path,
            *("esptool", "--chip", "esp32", "--port", f"rfc2217://{address}", "--no-stub"),
            *("--connect-attempts", "1", "read-mac"),
        )
        assert bytes.fromhex(running.address.uid).hex(":") in said
        until = time.monotonic() + 60
        while running.control.state() != {"state": "running", "boots": 2}:
            assert time.monotonic() < until
            time.sleep(0.02)
