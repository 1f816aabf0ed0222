"""The other ends of an access point: who sets its links and asks what it saw, and a board."""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any, Literal

from boards.virtual.lan import packets
from boards.virtual.lan.access_point import SOCKET
from boards.virtual.lan.nic import BoardNic, LanError

_ANSWER_S = 5.0


class LanControl:
    """Asks the access point in ``folder``. Every call is one connection with one deadline."""

    def __init__(self, folder: Path, *, timeout_s: float = _ANSWER_S) -> None:
        self._path = folder / SOCKET
        self._timeout_s = timeout_s

    def state(self) -> Mapping[str, Any]:
        """Return ``host`` (our address on the LAN), ``network``, ``ssid`` and ``boards``."""
        return self._call("state")

    def set_link(
        self,
        board: str,
        *,
        up: bool | None = None,
        loss: float | None = None,
        delay_ms: float | None = None,
    ) -> Mapping[str, Any]:
        """Change what is given of a board's link; return how it is now, and ``at``.

        ``loss`` is the share of frames, 0 to 1, and like ``delay_ms`` counts each way. ``at`` is
        on the clock of ``time.monotonic``. Raises ``LanError``.
        """
        wanted = {"up": up, "loss": loss, "delay_ms": delay_ms}
        changes = {name: value for name, value in wanted.items() if value is not None}
        return self._call("link", board=board, **changes)

    def seen(self, board: str) -> Mapping[str, Any]:
        """Return what a board's link has carried: counts, and each FIN and RST of the board."""
        return self._call("seen", board=board)

    def stop(self) -> None:
        """End the LAN; boards lose their network."""
        self._call("stop")

    def _call(self, what: str, **arguments: Any) -> Mapping[str, Any]:
        try:
            with packets.connect(self._path, self._timeout_s) as link:
                packets.send(link, {"do": what, **arguments})
                return _answer(packets.receive(link), what)
        except OSError as error:
            raise LanError(f"{self._path}: {what!r} failed: {error}; is the LAN up?") from None


def _answer(received: tuple[packets.Message, list[int]] | None, what: str) -> packets.Message:
    if received is None:
        raise LanError(f"the access point ended before it answered {what!r}")
    message, _ = received
    if not message.get("ok"):
        raise LanError(f"the access point refused {what!r}: {message.get('error')}")
    return message


@dataclass(frozen=True, slots=True)
class Joined:
    """What joining a network came to; ``address`` and ``gateway`` if it is "yes"."""

    how: Literal["yes", "no-network", "wrong-key"]
    address: IPv4Interface | None = None
    gateway: IPv4Address | None = None


class Membership:
    """A board's end. Its owner runs the selector; calls wait for their answers, some ms.

    ``on_link`` is called when the link goes down or comes back, also as the access point ends.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        folder: Path,
        board: str,
        on_link: Callable[[bool], None],
    ) -> None:
        self._selector = selector
        self._path = folder / SOCKET
        self._board = board
        self._on_link = on_link
        self._link: socket.socket | None = None

    def attach(self, nic: BoardNic, mac: bytes) -> None:
        """Plug the board's device into the access point. Raises ``LanError``."""
        try:
            if self._link is None:
                self._link = packets.connect(self._path, _ANSWER_S)
                self._selector.register(self._link, selectors.EVENT_READ, self._readable)
            self._call({"do": "attach", "board": self._board, "mac": mac.hex()}, [nic.tap])
        except OSError as error:
            self._lose()
            raise LanError(f"{self._path}: {error}; is the LAN up?") from None

    def detach(self) -> None:
        """Let nothing through any more; harmless when nothing is."""
        with contextlib.suppress(LanError, OSError):
            self._call({"do": "detach"})

    def join(self, ssid: str, key: str) -> Joined:
        """Join a network by its name and password."""
        try:
            answer = self._call({"do": "join", "ssid": ssid, "key": key})
        except (LanError, OSError):
            return Joined("no-network")
        if answer["joined"] != "yes":
            return Joined(answer["joined"])
        address, gateway = IPv4Interface(answer["address"]), IPv4Address(answer["gateway"])
        return Joined("yes", address, gateway)

    def leave(self) -> None:
        """Leave the network; harmless when none was joined."""
        with contextlib.suppress(LanError, OSError):
            self._call({"do": "leave"})

    def close(self) -> None:
        """Leave for good."""
        if self._link is not None:
            self._selector.unregister(self._link)
            self._link.close()
            self._link = None

    def _call(self, request: packets.Message, descriptors: list[int] | None = None) -> Any:
        if self._link is None:
            raise LanError("the LAN is not up")
        packets.send(self._link, request, descriptors or [])
        until = time.monotonic() + _ANSWER_S
        while True:
            self._link.settimeout(max(0.001, until - time.monotonic()))
            received = packets.receive(self._link)
            if received is not None and "event" in received[0]:
                self._on_link(bool(received[0]["up"]))
                continue
            return _answer(received, str(request["do"]))

    def _readable(self, _events: int) -> None:
        if self._link is None:
            return
        try:
            self._link.settimeout(0)
            received = packets.receive(self._link)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            received = None
        if received is None:
            self._lose()
        elif "event" in received[0]:
            self._on_link(bool(received[0]["up"]))

    def _lose(self) -> None:
        self.close()
        self._on_link(False)
