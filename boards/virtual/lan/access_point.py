"""The access point of a desk: this machine's place on the LAN, and the boards that have joined.

It answers requests at a unix socket in its folder (see ``packets``), to its owner only. Of a board:
``attach`` (``board``, ``mac``, with the descriptor of its device), ``join`` (``ssid``, ``key``),
``leave``, ``detach``; it is told ``{"event": "link", "up": …}``. Of anybody: ``state``, ``link``
(``board``, and what is to change of ``up``, ``loss``, ``delay_ms``), ``seen`` (``board``),
``stop``.
"""

import contextlib
import json
import logging
import os
import random
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

from boards.control_port import Refused
from boards.virtual.lan import packets
from boards.virtual.lan.nic import HostNic
from boards.virtual.lan.switch import Link, Switch
from boards.virtual.lifetime import Life, take_folder

SOCKET = "access-point"
_HOST = "host"  # its port of the switch; a board's is its id, which has no spaces
_HOST_PORT = f" {_HOST}"
_IDLE_S = 0.5
_FRAME_BYTES = 2048
_FRAMES_A_TURN = 64
_MAX_CLIENTS = 256
_MAX_DELAY_MS = 60_000
_log = logging.getLogger(__name__)


class _Board:
    """One board that has ever been here: its address and link are the same when it comes again."""

    def __init__(self, address: IPv4Interface) -> None:
        self.address = address
        self.link = Link()
        self.tap: int | None = None
        self.joined = False
        self.client: socket.socket | None = None


class AccessPoint:
    """Owns the LAN's folder, devices and switch."""

    def __init__(self, folder: Path, ssid: str, key: str, *, detached: bool = False) -> None:
        """Open the LAN. Raises ``FolderInUse``, ``LanError``, ``OSError``."""
        self._lock = take_folder(folder)
        self._ssid, self._key = ssid, key
        self._selector = selectors.DefaultSelector()
        self._life = Life(self._selector, detached=detached)
        self._host = HostNic()
        self._switch = Switch(random.Random())
        self._switch.add(_HOST_PORT, Link())
        self._boards: dict[str, _Board] = {}
        self._clients: dict[socket.socket, str] = {}  # and the board that each is, or ""
        self._folder = folder
        self._listener = packets.listen(folder / SOCKET)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._read_frames(self._host.tap, _HOST_PORT)
        self._requests: dict[str, Callable[[_Request], dict[str, Any]]] = {
            "attach": self._attach,
            "join": self._join,
            "leave": self._leave,
            "detach": self._detach,
            "state": self._state,
            "link": self._link,
            "seen": self._seen,
            "stop": self._stop,
        }

    def run(self, on_ready: Callable[[dict[str, Any]], None]) -> None:
        """Carry frames until its end (see ``lifetime``)."""
        _log.info("%s: %s, network %s", self._host.name, self._host.interface, self._ssid)
        try:
            on_ready(self._address())
            self._life.run(self._tick, self._poll_s)
        finally:
            (self._folder / SOCKET).unlink(missing_ok=True)
            for client in list(self._clients):
                self._drop(client)
            self._listener.close()
            self._selector.close()
            self._host.close()
            self._lock.close()

    def _address(self) -> dict[str, Any]:
        return {
            "host": str(self._host.interface.ip),
            "network": str(self._host.network),
            "ssid": self._ssid,
            "has_key": bool(self._key),
        }

    def _poll_s(self) -> float:
        due = self._switch.next_deadline()
        return _IDLE_S if due is None else min(_IDLE_S, max(0.0, due - time.monotonic()))

    def _tick(self, now: float) -> None:
        for port, frame in self._switch.due(now):
            tap = self._host.tap if port == _HOST_PORT else self._boards[port].tap
            if tap is not None:
                with contextlib.suppress(OSError):  # its queue is full, or it is down: lost
                    os.write(tap, frame)

    def _read_frames(self, tap: int, port: str) -> None:
        def ready(_events: int) -> None:
            with contextlib.suppress(OSError):  # there is no more, or it is down
                for _ in range(_FRAMES_A_TURN):
                    frame = os.read(tap, _FRAME_BYTES)
                    self._switch.receive(port, frame, time.monotonic())

        self._selector.register(tap, selectors.EVENT_READ, ready)

    # ---- requests ----

    def _accept(self, _events: int) -> None:
        client, _ = self._listener.accept()
        if len(self._clients) >= _MAX_CLIENTS:
            client.close()
            return
        client.setblocking(False)
        self._clients[client] = ""
        self._selector.register(client, selectors.EVENT_READ, lambda _: self._readable(client))

    def _readable(self, client: socket.socket) -> None:
        try:
            received = packets.receive(client)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            received = None
        if received is None:
            self._drop(client)
            return
        message, descriptors = received
        request = _Request(client, message, descriptors)
        try:
            answer = self._serve(request)
        except Refused as error:
            answer = {"ok": False, "error": str(error)}
        for descriptor in request.descriptors:  # nobody took it
            os.close(descriptor)
        self._send(client, answer)

    def _serve(self, request: "_Request") -> dict[str, Any]:
        action = self._requests.get(str(request.message.get("do")))
        if action is None:
            raise Refused(f"a request is {{'do': NAME}}, NAME one of {sorted(self._requests)}")
        return {"ok": True, **action(request)}

    def _send(self, client: socket.socket, message: packets.Message) -> None:
        try:
            packets.send(client, message)
        except OSError:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        id = self._clients.pop(client, None)
        if id is None:
            return
        self._selector.unregister(client)
        client.close()
        if id and self._boards[id].client is client:
            self._unplug(id)

    def _attach(self, request: "_Request") -> dict[str, Any]:
        id = str(request.message.get("board", ""))
        if not id or " " in id or not request.descriptors:
            raise Refused("attach takes a board and the descriptor of its device")
        board = self._boards.get(id)
        if board is None:
            board = self._boards[id] = _Board(self._free_address())
            self._switch.add(id, Link(up=False))
        if board.client not in (None, request.client):
            raise Refused(f"board {id!r} is attached already")
        self._unplug(id)
        board.client = request.client
        self._clients[request.client] = id
        board.tap = request.descriptors.pop()
        os.set_blocking(board.tap, False)
        self._read_frames(board.tap, id)
        self._note("attached", id)
        return {"up": board.link.up}

    def _join(self, request: "_Request") -> dict[str, Any]:
        id, board = self._board_of(request.client)
        if not board.link.up or request.message.get("ssid") != self._ssid:
            return {"joined": "no-network"}
        if self._key and request.message.get("key") != self._key:
            return {"joined": "wrong-key"}
        board.joined = True
        self._apply(id)
        self._note("joined", id)
        gateway = str(self._host.interface.ip)
        return {"joined": "yes", "address": str(board.address), "gateway": gateway}

    def _leave(self, request: "_Request") -> dict[str, Any]:
        id, board = self._board_of(request.client)
        board.joined = False
        self._apply(id)
        self._note("left", id)
        return {}

    def _detach(self, request: "_Request") -> dict[str, Any]:
        id, _ = self._board_of(request.client)
        self._unplug(id)
        return {"at": time.monotonic()}

    def _state(self, _request: "_Request") -> dict[str, Any]:
        return {
            **self._address(),
            "boards": {
                id: {
                    "address": str(board.address.ip),
                    "attached": board.tap is not None,
                    "joined": board.joined,
                    **_as_data(board.link),
                }
                for id, board in self._boards.items()
            },
        }

    def _link(self, request: "_Request") -> dict[str, Any]:
        id = str(request.message.get("board"))
        board = self._known(id)
        before, board.link = board.link, _changed(board.link, request.message)
        self._apply(id)
        self._note("link", id, **_as_data(board.link))
        if before.up != board.link.up and board.client is not None:
            self._send(board.client, {"event": "link", "up": board.link.up})
        return {"at": time.monotonic(), **_as_data(board.link)}

    def _seen(self, request: "_Request") -> dict[str, Any]:
        id = str(request.message.get("board"))
        self._known(id)
        traffic = self._switch.traffic(id)
        return {
            "frames_in": traffic.frames_in,
            "frames_out": traffic.frames_out,
            "lost": traffic.lost,
            "last_in": traffic.last_in,
            "endings": [
                {"at": one.at, "kind": one.kind, "port": one.source_port, "passed": one.passed}
                for one in traffic.endings
            ],
        }

    def _stop(self, _request: "_Request") -> dict[str, Any]:
        self._life.end()
        return {}

    # ---- boards ----

    def _unplug(self, id: str) -> None:
        """Let nothing more through from a board that loses its power, not even a farewell."""
        board = self._boards[id]
        board.joined = False
        board.client = None
        self._apply(id)
        if board.tap is not None:
            self._selector.unregister(board.tap)
            os.close(board.tap)
            board.tap = None
            self._note("detached", id)

    def _apply(self, id: str) -> None:
        board = self._boards[id]
        self._switch.set_link(id, replace(board.link, up=board.link.up and board.joined))

    def _board_of(self, client: socket.socket) -> tuple[str, _Board]:
        id = self._clients.get(client, "")
        if not id:
            raise Refused("attach first")
        return id, self._boards[id]

    def _known(self, id: str) -> _Board:
        if id not in self._boards:
            known = ", ".join(self._boards) or "none yet"
            raise Refused(f"no board {id!r} has been on this LAN; there are: {known}")
        return self._boards[id]

    def _free_address(self) -> IPv4Interface:
        network = self._host.network
        place = len(self._boards) + 2
        if place >= network.num_addresses - 1:
            raise Refused(f"{network} has no more places")
        return IPv4Interface((IPv4Address(network[place]), network.prefixlen))

    def _note(self, event: str, board: str, **about: Any) -> None:
        _log.info(
            "%s", json.dumps({"at": time.monotonic(), "event": event, "board": board, **about})
        )


class _Request:
    def __init__(
        self, client: socket.socket, message: packets.Message, descriptors: list[int]
    ) -> None:
        self.client = client
        self.message = message
        self.descriptors = descriptors  # what is left of them is closed


def _changed(link: Link, message: packets.Message) -> Link:
    up, loss = message.get("up", link.up), message.get("loss", link.loss)
    delay_ms = message.get("delay_ms", link.delay_s * 1000)
    if not isinstance(up, bool):
        raise Refused(f"up is {up!r}, not true or false")
    if isinstance(loss, bool) or not isinstance(loss, int | float) or not 0 <= loss <= 1:
        raise Refused(f"loss is {loss!r}, not 0 to 1")
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int | float):
        raise Refused(f"delay_ms is {delay_ms!r}, not a number")
    if not 0 <= delay_ms <= _MAX_DELAY_MS:
        raise Refused(f"delay_ms is {delay_ms!r}, not 0 to {_MAX_DELAY_MS}")
    return Link(up, float(loss), delay_ms / 1000)


def _as_data(link: Link) -> dict[str, Any]:
    return {"up": link.up, "loss": link.loss, "delay_ms": link.delay_s * 1000}
