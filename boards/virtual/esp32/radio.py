"""The Wi-Fi of a virtual ESP32, as its ``network`` module asks for it.

The interpreter's fake (``firmware/unixport/vesp32/vesp32_network.py``) holds the far end of a
socket pair and asks in JSON lines: ``{"n": 1, "do": "state"}``, ``"active"`` (``on``), ``"join"``
(``ssid``, ``key``), ``"leave"``; each is answered with its ``n`` and the state, which is one of
``idle connecting up no-network wrong-key lost``.

On a LAN the chip has a network namespace of its own, and whatever ends it, but for a soft reset,
takes its place on the LAN first: nobody hears it go. Without a LAN every network is in range and is
this machine's loopback.
"""

import json
import selectors
import socket
from collections.abc import Callable
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Literal

from boards.virtual.lan.client import Membership
from boards.virtual.lan.nic import BoardNic

RadioState = Literal["idle", "connecting", "up", "no-network", "wrong-key", "lost"]

_JOIN_S = 0.2  # an access point next to a real board takes one or two seconds
_BEACONS_S = 2.0  # without any, the chip notices that its link is gone
_CHUNK_BYTES = 4096
_LINE_BYTES = 4096
_NOWHERE = IPv4Interface("0.0.0.0/0")
_LOOPBACK = IPv4Interface("127.0.0.1/8")


class Radio:
    """One chip's radio. Its owner runs the selector and calls ``tick``; times are monotonic."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        board: str,
        mac: bytes,
        lan: Path | None,
        now: Callable[[], float],
    ) -> None:
        self._mac = mac
        self._now = now
        self._member = Membership(selector, lan, board, self._link_changed) if lan else None
        self._nic: BoardNic | None = None
        self._selector = selector
        self._active = False
        self._state: RadioState = "idle"
        self._ssid, self._key = "", ""
        self._address, self._gateway = _NOWHERE, _NOWHERE.ip
        self._due: float | None = None
        self._ours, self._chip = socket.socketpair()
        for end in (self._ours, self._chip):
            end.setblocking(False)
        self._heard = bytearray()
        selector.register(self._ours, selectors.EVENT_READ, self._readable)

    @property
    def descriptor(self) -> int:
        """The chip's end, to be inherited by the interpreter."""
        return self._chip.fileno()

    @property
    def due_at(self) -> float | None:
        """When ``tick`` has something to do."""
        return self._due

    def power_on(self) -> None:
        """Begin as after a reset: nothing joined, nobody's connections. Raises ``LanError``."""
        self.cut()
        if self._member is not None:
            self._nic = BoardNic(self._mac)
            self._member.attach(self._nic, self._mac)

    def cut(self) -> None:
        """Take the chip off the air, before anything can say goodbye."""
        if self._member is not None:
            self._member.detach()
        if self._nic is not None:
            self._nic.close()
            self._nic = None
        self._forget()

    def new_program(self) -> None:
        """A soft reset: what was joined stays; what was asked and not answered is forgotten."""
        self._heard.clear()
        for end in (self._ours, self._chip):
            _drain(end)

    def enter(self) -> None:
        """Put a new process where the chip's sockets are; between fork and exec."""
        if self._nic is not None:
            self._nic.enter()

    def close(self) -> None:
        """Take it away."""
        self.cut()
        if self._member is not None:
            self._member.close()
        self._selector.unregister(self._ours)
        self._ours.close()
        self._chip.close()

    def tick(self, now: float) -> None:
        """Do what is due: an answer of the access point, the loss of its beacons."""
        if self._due is None or now < self._due:
            return
        self._due = None
        if self._state == "up":
            self._state = "lost"
        else:
            self._join()

    def _forget(self) -> None:
        self._active = False
        self._state = "idle"
        self._ssid, self._key = "", ""
        self._address, self._gateway = _NOWHERE, _NOWHERE.ip
        self._due = None

    def _link_changed(self, up: bool) -> None:
        if self._state == "up":
            self._due = None if up else self._now() + _BEACONS_S
        elif up and self._state in ("lost", "no-network"):
            self._try_join()  # as the driver does, for ever

    def _try_join(self) -> None:
        self._state = "connecting"
        self._due = self._now() + (_JOIN_S if self._member is not None else 0)

    def _join(self) -> None:
        if self._member is None:
            self._state, self._address, self._gateway = "up", _LOOPBACK, _LOOPBACK.ip
            return
        joined = self._member.join(self._ssid, self._key)
        if joined.address is None or joined.gateway is None or self._nic is None:
            self._state = "wrong-key" if joined.how == "wrong-key" else "no-network"
            return
        self._state, self._address, self._gateway = "up", joined.address, joined.gateway
        self._nic.configure(joined.address, joined.gateway)

    def _leave(self) -> None:
        if self._member is not None:
            self._member.leave()
        if self._nic is not None and self._address is not _NOWHERE:
            self._nic.unconfigure()
        active = self._active
        self._forget()
        self._active = active

    def _readable(self, _events: int) -> None:
        self._heard += self._ours.recv(_CHUNK_BYTES)
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard[:] = rest[-_LINE_BYTES:]
        for line in lines:
            self._serve(line)

    def _serve(self, line: bytes) -> None:
        try:
            request = json.loads(line)
            what, number = request["do"], request["n"]
        except (ValueError, KeyError, TypeError):
            return  # cut by Ctrl-C; who asked has gone
        if what == "active":
            if not request.get("on"):
                self._leave()
            self._active = bool(request.get("on"))
        elif what == "join":
            self._leave()
            self._ssid, self._key = str(request.get("ssid")), str(request.get("key") or "")
            self._try_join()
            self.tick(self._now())  # where nothing has to be waited for
        elif what == "leave":
            self._leave()
        self._answer(number)

    def _answer(self, number: int) -> None:
        answer = {
            "n": number,
            "active": self._active,
            "state": self._state,
            "ssid": self._ssid,
            "address": str(self._address.ip),
            "mask": str(self._address.netmask),
            "gateway": str(self._gateway),
        }
        try:
            self._ours.send(json.dumps(answer).encode() + b"\n")
        except BlockingIOError:
            return  # a program that asks and never listens


def _drain(end: socket.socket) -> None:
    try:
        while end.recv(_CHUNK_BYTES):
            pass
    except BlockingIOError:
        return
