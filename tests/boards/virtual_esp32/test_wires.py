"""The pins, the watchdog and UART 1 of a virtual ESP32, from MicroPython and from outside."""

import socket
import time
from collections.abc import Callable

import pytest

from boards.virtual.board import VirtualBoard
from boards.virtual.control import BoardError

Tool = Callable[..., str]


def _exec(board: VirtualBoard, mpremote: Tool, *lines: str) -> str:
    """Execute without a soft reset first: pins stay as they are."""
    return mpremote(board, "resume", "exec", "\n".join(lines)).strip()


def test_pins_are_seen_and_set_from_outside(running: VirtualBoard, mpremote: Tool) -> None:
    said = _exec(
        running,
        mpremote,
        "from machine import Pin",
        "led = Pin(2, Pin.OUT, value=1)",
        "drain = Pin(3, Pin.OPEN_DRAIN, value=1)",
        "pulled, plain = Pin(4, Pin.IN, Pin.PULL_UP), Pin(5)",
        "print(led(), pulled(), plain(), Pin(2) is led, led)",
    )
    assert said == "1 1 0 True Pin(2)"
    assert [running.control.gpio(pin) for pin in (2, 3, 4, 5)] == [True, False, True, False]
    running.control.set_gpio(4, False)
    running.control.set_gpio(5, True)
    running.control.set_gpio(2, False)  # the chip drives it
    assert _exec(running, mpremote, "print(led(), pulled(), plain())") == "1 0 1"
    assert _exec(running, mpremote, "led.off(); led.toggle(); led.toggle(); print(led())") == "0"
    assert running.control.gpio(2) is False


def test_changes_of_pins_are_kept_in_order(running: VirtualBoard, mpremote: Tool) -> None:
    _exec(running, mpremote, "from machine import Pin; p = Pin(2, Pin.OUT, value=1)", "p.off()")
    running.control.set_gpio(5, True)
    seen = running.control.gpio_changes()
    assert seen == {"changes": [(2, True), (2, False), (5, True)], "lost": 0, "count": 3}
    _exec(running, mpremote, "for _ in range(600): p.toggle()")
    seen = running.control.gpio_changes(since=3)
    assert seen["changes"] == [(2, True), (2, False)] * 250
    assert (seen["lost"], seen["count"]) == (100, 603)


def test_a_reset_makes_pins_inputs_and_keeps_what_is_outside(
    running: VirtualBoard, mpremote: Tool
) -> None:
    running.control.set_gpio(5, True)
    _exec(running, mpremote, "from machine import Pin; Pin(2, Pin.OUT, value=1)")
    assert running.control.gpio(2) is True
    running.control.reset()
    assert running.control.gpio(2) is False
    assert _exec(running, mpremote, "from machine import Pin; print(Pin(5)())") == "1"


def test_a_fake_says_what_it_cannot_do(running: VirtualBoard, mpremote: Tool) -> None:
    said = mpremote(running, "exec", "from machine import Pin; Pin(2).irq(print)", fails=True)
    assert "NotImplementedError: virtual ESP32: pins have no interrupts" in said
    with pytest.raises(BoardError, match="there is no GPIO 40"):
        running.control.gpio(40)


def test_an_unfed_watchdog_resets_the_board(running: VirtualBoard, mpremote: Tool) -> None:
    said = _exec(
        running,
        mpremote,
        "import machine, time",
        "w = machine.WDT(timeout=1000)",
        "for _ in range(12):",
        "    time.sleep_ms(100)",
        "    w.feed()",
        "print('fed')",  # and not reset; later is too late to ask, on a busy machine
    )
    assert said == "fed"
    deadline = time.monotonic() + 60
    while running.control.state() != {"state": "running", "boots": 2}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert _exec(running, mpremote, "import machine; print(machine.reset_cause())") == "3"
    # The reset has ended the watchdog: the board stays.
    _exec(running, mpremote, "import time; time.sleep_ms(1200)")
    assert running.control.state()["boots"] == 2


def test_uart_1_is_the_data_line(running: VirtualBoard, mpremote: Tool) -> None:
    url = running.address.data_url
    assert url is not None
    content = bytes(range(256)) * 100
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10) as line:
        _exec(
            running,
            mpremote,
            "import select",
            "from machine import UART",
            "u = UART(1, 115200, rxbuf=1000)",
            "p = select.poll(); p.register(u, select.POLLIN)",
            "print(p.poll(0), u.any(), u.read(), u)",
        )
        mpremote(
            running,
            "resume",
            "exec",
            "--no-follow",
            "b, n = bytearray(700), 0\n"
            f"while n < {len(content)}:\n"
            "    p.poll()\n"
            "    k = u.readinto(b)\n"
            "    n += u.write(memoryview(b)[:k])\n",
        )
        line.sendall(content)
        got = b""
        while len(got) < len(content):
            data = line.recv(65536)
            assert data
            got += data
    assert got == content


def test_a_read_waits_for_its_timeout(running: VirtualBoard, mpremote: Tool) -> None:
    said = _exec(
        running,
        mpremote,
        "import time",
        "from machine import UART",
        "u = UART(1, 9600, timeout=100)",
        "t = time.ticks_ms(); r = u.read(3)",
        "print(r, time.ticks_diff(time.ticks_ms(), t) >= 100)",
    )
    assert said == "None True"


def test_the_network_is_a_fake_that_is_always_there(running: VirtualBoard, mpremote: Tool) -> None:
    said = _exec(
        running,
        mpremote,
        "import network",
        "w = network.WLAN(network.STA_IF)",
        "before = w.active(), w.isconnected(), w.status() == network.STAT_IDLE",
        "w.active(True); w.connect('attic', 'secret'); w.config(pm=w.PM_NONE)",
        "print(before, w.isconnected(), w.ifconfig()[0], w.config('mac').hex(), w.config('essid'))",
    )
    uid = running.address.uid
    assert said == f"(False, False, True) True 127.0.0.1 {uid} attic"
