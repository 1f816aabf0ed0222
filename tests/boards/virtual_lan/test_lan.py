"""Virtual ESP32s on a LAN of their own: how they join, reach a broker, lose it, and die."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.mpremote_cli import copy_to_board
from boards.repl import NoReply, RemoteError, Repl
from boards.session.observer import Observer
from boards.virtual.board import BoardError, VirtualBoard
from boards.virtual.lan.nic import LanError
from boards.virtual.lan.process import VirtualLan, command
from boards.virtual.preload import preload
from firmware.build import ensure
from tests.boards.lan_possible import is_here
from tests.boards.raw_repl import soft_reset_by_code

_S = 30.0
_JOIN = """
import network, time
w = network.WLAN()
w.active(True)
w.connect({ssid!r}, {key!r})
while w.status() == network.STAT_CONNECTING: time.sleep_ms(10)
print(w.status(), w.isconnected(), w.ifconfig()[0])
"""
_DIAL = """
import socket
s = socket.socket()
s.connect(socket.getaddrinfo({host!r}, {port})[0][-1])
"""
_CLIENT = """
from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp
c = FmqpClient(Tcp({host!r}, {port}), name=b"board")
c.connect()
c.publish(b"lan/will", b"gone", will=True)
c.ping()
"""


def _repl(board: VirtualBoard) -> Repl:
    return Repl.open(board.address.serial_url, deadline_s=_S)


def _run(repl: Repl, code: str, **words: object) -> str:
    return repl.exec(code.format(**words), deadline_s=_S)


def _join(repl: Repl, ssid: str = "virtual", key: str = "") -> list[str]:
    return _run(repl, _JOIN, ssid=ssid, key=key).split()


def _to(repl: Repl, code: str, broker: str) -> str:
    host, _, port = broker.rpartition(":")
    return _run(repl, code, host=host, port=port)


def _eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + _S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def client(board: VirtualBoard, board_files: Path) -> VirtualBoard:
    """A board that has the client."""
    copy_to_board(board.address.serial_url, folders=[board_files / "lib"], files=[], deadline_s=_S)
    return board


def test_a_board_has_no_network_until_it_joins_the_right_one(
    board: VirtualBoard, broker: str
) -> None:
    with _repl(board) as repl:
        with pytest.raises(RemoteError, match="OSError"):
            _to(repl, _DIAL, broker)
        assert _join(repl, "another") == ["201", "False", "0.0.0.0"]
        status, joined, address = _join(repl)
        assert (status, joined) == ("1010", "True")
        assert address.rpartition(".")[0] == broker.rpartition(".")[0]
        _to(repl, _DIAL, broker)
        with pytest.raises(RemoteError, match="ECONNREFUSED"):  # its own loopback, not ours
            _to(repl, _DIAL, f"127.0.0.1:{board.address.control_port}")


def test_a_network_may_have_a_password(lan_is_possible: None, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    preload("esp32", tmp_path / "board", ensure("vesp32"))
    with (
        VirtualLan.start(tmp_path / "lan", key_file=tmp_path / "key") as lan,
        VirtualBoard.start("esp32", "e", tmp_path / "board", lan=lan.folder) as board,
        _repl(board) as repl,
    ):
        assert _join(repl, key="wrong")[:2] == ["202", "False"]
        assert _join(repl, key="secret")[:2] == ["1010", "True"]


def test_publications_arrive_by_a_link_that_loses_and_delays(
    client: VirtualBoard, lan: VirtualLan, patient_broker: str
) -> None:
    client.control.set_link(loss=0.05, delay_ms=20)
    with Observer(patient_broker, "lan/number") as observer, _repl(client) as repl:
        _join(repl)
        _to(repl, _CLIENT, patient_broker)
        _run(repl, "for i in range(100): c.publish(b'lan/number', b'%d' % i)\nc.ping()")
        observer.wait_for(lambda seen: len(seen) >= 100, _S)
        assert [int(message.text) for message in observer.seen()] == list(range(100))
        assert int(_run(repl, "print(c.ping())")) >= 40_000
    assert lan.control.seen(client.address.id)["lost"] > 0


@pytest.mark.parametrize("death", ["power", "machine.reset", "watchdog", "soft reset"])
def test_a_board_that_dies_says_nothing_unless_its_program_just_ends(
    client: VirtualBoard, lan: VirtualLan, broker: str, death: str
) -> None:
    with Observer(broker, "lan/will") as observer, _repl(client) as repl:
        _join(repl)
        _to(repl, _CLIENT, broker)
        boots = client.control.state()["boots"]
        died = time.monotonic()
        if death == "power":
            client.control.power(on=False)
        else:
            code = {
                "machine.reset": "import machine; machine.reset()",
                "watchdog": "import machine, time; machine.WDT(timeout=10); time.sleep(60)",
                "soft reset": "import machine; machine.soft_reset()",
            }[death]
            with contextlib.suppress(NoReply):  # after a soft reset the REPL answers
                repl.exec(code, deadline_s=0.5)
        observer.wait_for(lambda seen: len(seen) >= 1, _S)
        (will,) = observer.seen()
        assert will.text == "gone"
        after = will.at_ns / 1e9 - died
        endings = lan.control.seen(client.address.id)["endings"]
        kinds = [one["kind"] for one in endings if one["at"] > died]
        if death == "soft reset":
            assert kinds[:1] == ["fin"] and after < 1.5
        else:
            # By the broker's two seconds of patience, and nothing else.
            assert kinds == [] and 1.9 < after < 10
    if death in ("machine.reset", "watchdog"):
        _eventually(lambda: client.control.state() == {"state": "running", "boots": boots + 1})
        with _repl(client) as repl:
            assert _run(repl, "print(__import__('network').WLAN().active())").strip() == "False"


def test_a_soft_reset_keeps_the_network(board: VirtualBoard, broker: str) -> None:
    repl = _repl(board)
    try:
        _join(repl)
    finally:
        repl.close(friendly=False)  # the next line's words could overtake a farewell on this one
    soft_reset_by_code(board)
    with _repl(board) as repl:
        assert _run(repl, "import network; print(network.WLAN().isconnected())").strip() == "True"
        _to(repl, _DIAL, broker)


def test_a_link_that_goes_down_is_noticed_and_comes_back(board: VirtualBoard, broker: str) -> None:
    ask = "print(w.status(), w.isconnected())"
    with _repl(board) as repl:
        _join(repl)
        board.control.set_link(up=False)
        assert _run(repl, ask).split() == ["1010", "True"]  # it has not missed its beacons yet
        _eventually(lambda: _run(repl, ask).split() == ["200", "False"])
        board.control.set_link(up=True)
        _eventually(lambda: _run(repl, ask).split() == ["1010", "True"])
        _to(repl, _DIAL, broker)


def test_a_lan_that_is_killed_leaves_nothing_and_another_takes_its_place(
    board: VirtualBoard, lan: VirtualLan
) -> None:
    with _repl(board) as repl:
        _join(repl)
        assert is_here(lan.host)
        os.kill(lan.pid, signal.SIGKILL)
        _eventually(lambda: not is_here(lan.host))
        _eventually(lambda: _run(repl, "print(w.isconnected())").strip() == "False")
        with VirtualLan.start(lan.folder) as again:
            assert is_here(again.host)
            board.control.reset()
        assert not is_here(again.host)
    with pytest.raises(BoardError):
        board.control.set_link(up=True)


def test_a_board_that_is_killed_gets_its_address_back(
    board: VirtualBoard, lan: VirtualLan, tmp_path: Path
) -> None:
    with _repl(board) as repl:
        address = _join(repl)[2]
    os.killpg(board.pid, signal.SIGKILL)
    _eventually(lambda: not lan.control.state()["boards"]["vesp32-1"]["attached"])
    preload("esp32", tmp_path / "other", ensure("vesp32"))
    with (
        VirtualBoard.start("esp32", "vesp32-2", tmp_path / "other", lan=lan.folder) as other,
        VirtualBoard.start("esp32", "vesp32-1", tmp_path / "board", lan=lan.folder) as again,
        _repl(other) as one,
        _repl(again) as two,
    ):
        assert _join(one)[2] != address
        assert _join(two)[2] == address


def test_without_a_lan_links_are_refused(tmp_path: Path) -> None:
    preload("esp32", tmp_path / "board", ensure("vesp32"))
    with (
        VirtualBoard.start("esp32", "e", tmp_path / "board") as board,
        pytest.raises(BoardError, match="on no LAN"),
    ):
        board.control.set_link(up=False)


def test_without_root_one_line_says_what_is_needed(
    without_capabilities: Callable[[], None], tmp_path: Path
) -> None:
    done = subprocess.run(
        command(tmp_path / "lan"),
        preexec_fn=without_capabilities,
        capture_output=True,
        text=True,
        timeout=_S,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "root" in line and "/dev/net/tun" in line and "--lan" in line


def test_two_on_one_folder_are_refused_in_words(lan: VirtualLan) -> None:
    with pytest.raises(LanError, match="in use"):
        VirtualLan.start(lan.folder)
