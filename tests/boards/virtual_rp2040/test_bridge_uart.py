"""Two virtual RP2040s without a network, by UART1 and ``motemq bridge``, to the real broker.

In both modes: resets of boards, of the bridge and of the broker are seen by wills, and survived.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from boards.mpremote_cli import copy_to_board
from boards.virtual.board import VirtualBoard
from firmware.node_files import compile_client
from host_broker.client import Message, connect
from tests.boards.bridge_process import Process, running, status
from tests.host_broker.net.broker_process import BrokerProcess

_INSTALL_S = 120.0
_WAIT_S = 90.0
_ECHOES = 50
_ASK_AGAIN_S = 0.5
_ASK_AGAIN_RAW_S = 8.0
_NAMES = ("a", "b")

# One beat in 200 ms.
_MAIN = """
import time
import config
from umotemq.fmqp import FmqpClient
from umotemq.uart import Uart

line = Uart(1, 921600, 4, 5, quiet_ms=0 if config.RELIABLE else 2500)
if config.RELIABLE:
    from umotemq.reliable import Reliable
    line = Reliable(line, 2000)
client = FmqpClient(line, keepalive_ms=300, timeout_ms=3000, retry_ms=300)

def came(topic, payload):
    client.publish(b"echo/" + config.NAME, payload)

client.publish(b"will/" + config.NAME, b"gone", will=True)
client.subscribe(b"to/" + config.NAME, came)
beat = time.ticks_ms()
count = 0
while True:
    client.poll(20)
    if time.ticks_diff(time.ticks_ms(), beat) >= 0:
        beat = time.ticks_add(beat, 200)
        try:
            client.publish(b"beat/" + config.NAME, str(count).encode())
            count += 1
        except OSError:
            pass  # the link is down
"""


@pytest.fixture(scope="module")
def boards(
    tmp_path_factory: pytest.TempPathFactory,
    uf2_path: Path,
    flash: Callable[[VirtualBoard, Path], None],
) -> Iterator[list[VirtualBoard]]:
    """Boards that have the client."""
    root = tmp_path_factory.mktemp("client")
    compile_client(root)
    with contextlib.ExitStack() as stack:
        started = []
        for name in _NAMES:
            board = stack.enter_context(
                VirtualBoard.start("rp2040", name, tmp_path_factory.mktemp(name))
            )
            flash(board, uf2_path)
            url = board.address.serial_url
            copy_to_board(url, folders=[root / "lib"], files=[], deadline_s=_INSTALL_S)
            started.append(board)
        yield started


class _Ears:
    """Hears all that the boards say at a broker."""

    def __init__(self, port: int, stack: contextlib.ExitStack) -> None:
        client = connect(f"fmqp://127.0.0.1:{port}")
        self.client = stack.enter_context(client)
        for topic in ("beat/*", "will/*", "echo/*"):
            client.subscribe(topic)
        client.sync()

    def until(self, topic: str, payload: str | None = None) -> Message:
        deadline = time.monotonic() + _WAIT_S
        heard: list[str] = []
        while (left := deadline - time.monotonic()) > 0:
            message = self.client.receive(timeout_s=left)
            if message is None:
                break
            if message.topic == topic and payload in (None, message.payload.decode()):
                return message
            heard.append(f"{message.topic} {message.payload.decode()}")
        raise AssertionError(f"no {topic} {payload}, but {heard[-10:]}")

    def boards_are_back(self) -> None:
        """Wait until each board hears and is heard.

        In raw mode it is heard first: a new session that begins in the middle of its stream has
        no subscriptions, until its own pings are missing for too long.
        """
        deadline = time.monotonic() + _WAIT_S
        for number, name in enumerate(_NAMES):
            said = f"back {number}"
            answered = False
            while not answered:
                assert time.monotonic() < deadline, f"{name} does not answer"
                self.client.publish(f"to/{name}", said.encode())
                answered = self.hears(f"echo/{name}", said, _ASK_AGAIN_S)
        self.client.sync()
        while self.hears("echo/*", "*", _ASK_AGAIN_S):
            continue  # of what was asked again

    def hears(self, topic: str, payload: str, limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while (left := until - time.monotonic()) > 0:
            message = self.client.receive(timeout_s=left)
            if message is None or not fnmatch(message.topic, topic):
                continue
            if fnmatch(message.payload.decode(), payload):
                return True
        return False


def _start_programs(boards: list[VirtualBoard], folder: Path, *, reliable: bool) -> None:
    (folder / "main.py").write_text(_MAIN)
    for name, board in zip(_NAMES, boards, strict=True):
        (folder / "config.py").write_text(f"NAME = b'{name}'\nRELIABLE = {reliable}\n")
        files = [folder / "config.py", folder / "main.py"]
        copy_to_board(board.address.serial_url, folders=[], files=files, deadline_s=_INSTALL_S)
        board.control.reset()


def _config(folder: Path, boards: list[VirtualBoard], port: int, mode: str) -> Path:
    config = folder / "bridge.toml"
    text = f'[defaults]\nto = "fmqp://127.0.0.1:{port}"\nmode = "{mode}"\n'
    if mode == "raw":
        text += "silence_s = 2.0\n"
    for name, board in zip(_NAMES, boards, strict=True):
        text += f'[[port]]\nname = "{name}"\nserial = "{board.address.data_url}"\n'
    config.write_text(text)
    return config


def _bridge(config: Path, runtime: Path) -> contextlib.AbstractContextManager[Process]:
    return running("bridge", "--config", str(config), runtime=runtime)


def _echoes(ears: _Ears, name: str, *, reliable: bool) -> list[float]:
    """Send numbered messages to a board, one after the other; return the round trips in ms.

    In reliable mode each must come back once, and in order.
    """
    times = []
    for number in range(_ECHOES):
        began = time.monotonic()
        ears.client.publish(f"to/{name}", f"{number}".encode())
        if not reliable:
            # A busy machine may stop the emulator for longer than the silence: a new session.
            while not ears.hears(f"echo/{name}", f"{number}", _ASK_AGAIN_RAW_S):
                ears.client.publish(f"to/{name}", f"{number}".encode())
                assert time.monotonic() < began + _WAIT_S, f"{name} does not answer"
        else:
            assert ears.until(f"echo/{name}").payload == f"{number}".encode()
        times.append((time.monotonic() - began) * 1000)
    return times


@pytest.mark.parametrize("mode", ["raw", "reliable"])
def test_boards_bridge_and_broker_may_all_restart(
    boards: list[VirtualBoard], tmp_path: Path, mode: str, say: Callable[[str], None]
) -> None:
    runtime, reliable = tmp_path / "run", mode == "reliable"
    port = port_for_later()
    broker = BrokerProcess("--ephemeral", "--listen", f"fmqp://127.0.0.1:{port}")
    config = _config(tmp_path, boards, port, mode)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: broker.end())
        ears = _Ears(port, stack)
        with _bridge(config, runtime) as bridge:
            _start_programs(boards, tmp_path, reliable=reliable)
            ears.boards_are_back()
            for name in _NAMES:
                times = _echoes(ears, name, reliable=reliable)
                say(
                    f"virtual RP2040 {name}, {mode} bridge, 921600 baud: round trip from the "
                    f"broker's side, median {statistics.median(times):.1f} ms, "
                    f"max {max(times):.1f} ms of {len(times)}"
                )

            # A board is reset: the broker hears of it, the other board is not disturbed.
            began = time.monotonic()
            boards[0].control.reset()
            ears.until("will/a", "gone")
            say(f"{mode}: a board's reset is seen after {time.monotonic() - began:.1f} s")
            ears.until("beat/a", "0")
            sessions = {each["name"]: each["sessions"] for each in status(runtime)}
            assert sessions["a"] >= 2
            assert sessions["b"] == 1 or not reliable, bridge.log()

            # The bridge is killed: both are gone; its successor has them again.
            bridge.popen.kill()
            ears.until("will/b", "gone")
        with _bridge(config, runtime) as bridge:
            ears.boards_are_back()
            assert _echoes(ears, "b", reliable=reliable)

            # The broker is killed, and another one started at its port.
            broker.process.kill()
            broker.wait()
            broker = BrokerProcess("--ephemeral", "--listen", f"fmqp://127.0.0.1:{port}")
            ears = _Ears(port, stack)
            ears.boards_are_back()
            assert _echoes(ears, "a", reliable=reliable)
            if reliable:
                for each in status(runtime):
                    assert each["dropped_to_board_bytes"] == 0
                    assert each["link"]["frames_in"] > 0
            assert bridge.end() == 0
            assert not any("Traceback" in line for line in bridge.lines), bridge.lines
