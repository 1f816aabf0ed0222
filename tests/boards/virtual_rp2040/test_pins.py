"""The pins of a virtual Pico, from MicroPython's own machine.Pin and from outside."""

import time
from collections.abc import Callable

from boards.virtual.board import VirtualBoard

Mpremote = Callable[..., str]


def _exec(board: VirtualBoard, mpremote: Mpremote, *lines: str) -> str:
    return mpremote(board, "resume", "exec", "\n".join(lines)).strip()


def test_changes_of_pins_are_kept_in_order(board: VirtualBoard, mpremote: Mpremote) -> None:
    _exec(board, mpremote, "from machine import Pin", "p = Pin(16, Pin.OUT, value=0)")
    board.control.set_gpio(17, False)
    before = board.control.gpio_changes()["count"]
    _exec(board, mpremote, "p.on()", "p.off()", "p.toggle()")
    board.control.set_gpio(17, True)
    board.control.set_gpio(17, True)
    seen = board.control.gpio_changes(since=before)
    assert seen["changes"] == [(16, True), (16, False), (16, True), (17, True)]
    assert (seen["lost"], seen["count"]) == (0, before + 4)
    _exec(board, mpremote, "for _ in range(600): p.toggle()")
    seen = board.control.gpio_changes(since=before + 4)
    assert seen["changes"] == [(16, False), (16, True)] * 250
    assert (seen["lost"], seen["count"]) == (100, before + 604)
    assert board.control.gpio_changes(since=before + 604)["changes"] == []


def test_a_change_from_outside_interrupts_the_board(
    board: VirtualBoard, mpremote: Mpremote
) -> None:
    board.control.set_gpio(18, False)
    _exec(
        board,
        mpremote,
        "edges = 0",
        "def edge(pin):",
        "    global edges",
        "    edges += 1",
        "p = Pin(18, Pin.IN)",
        "p.irq(edge, Pin.IRQ_RISING)",
    )
    for level in (True, True, False, True, False):
        board.control.set_gpio(18, level)
    deadline = time.monotonic() + 60
    while _exec(board, mpremote, "print(edges)") != "2":
        assert time.monotonic() < deadline
    assert _exec(board, mpremote, "p.irq(None)", "print(edges)") == "2"
