"""The LightMQ client: a name, SEND and SENDRESP both ways, PING; everything with a deadline."""

import random
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from host_broker.address import Address
from host_broker.client.connection import Connection
from host_broker.client.errors import (
    BadArgument,
    ClientError,
    ConnectionLost,
    Refused,
    Timeout,
    callers_mistakes,
)
from host_broker.client.link import Link, deadline_of
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, DialectName, Refusal
from host_broker.protocols.lightmq.events import Connack, Event, Ping, Pong, Send, SendResp
from host_broker.wire.violation import Violation

_ADVICE = {
    Refusal.VERSION: "it does not speak this version of LightMQ",
    Refusal.UNAVAILABLE: "it is unavailable; try again later",
    Refusal.MALFORMED: "it calls our CONNECT malformed; is this client id allowed there?",
    Refusal.UNAUTHORIZED: "not allowed; is another client connected under this client id?",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A SEND from the broker; ``respond`` to it. ``received_ns`` on the clock of monotonic_ns()."""

    id: int
    data: bytes
    received_ns: int


class LightmqClient(Connection[Request]):
    """A connection to a LightMQ broker. Made by ``connect``; a context manager that closes.

    The broker's PINGs are answered whenever this client reads: in ``receive``, and while ``send``
    and ``ping`` wait. Not for several threads. Every method raises ``ConnectionLost`` when the
    connection has ended, ``BadArgument`` for data that LightMQ cannot carry.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        dialect: DialectName = "spec",
        *,
        calls: str | None = None,
    ) -> None:
        """Connect and CONNECT, both within ``timeout_s``. Raises ``ConnectFailed``, ``Refused``,
        ``Timeout``; ``BadArgument`` for a client id above 255 bytes, with its token.

        ``calls``: another client, whom what we SEND is for (``host_broker.client.calling``).
        """
        self.client_id = address.client_id or f"host-{secrets.token_hex(4)}"
        self._timeout_s = timeout_s
        self._dialect = DIALECTS[dialect]
        self._codec = Codec("client", dialect)
        with callers_mistakes():
            called = "" if calls is None else f">{calls}"
            hello = self._codec.connect(self.client_id + _token(address) + called)
        self._connack: Connack | None = None
        self._next_id = random.getrandbits(16)
        self._waiting: dict[int, bytes | None] = {}  # our SENDs: their response, None until it came
        self._pings: dict[int, None] = {}  # ids of PINGs that wait for their PONG, oldest first
        deadline = deadline_of(timeout_s)
        self._link: Link
        super().__init__(Link(address, timeout_s))
        try:
            self._link.send(hello, deadline)
            self._await_connack(deadline)
        except ClientError:
            self._link.abort()
            raise

    def send(self, data: bytes, timeout_s: float) -> bytes:
        """SEND data (at most 65463 bytes) and return the response. Raises ``Timeout``."""
        deadline = deadline_of(timeout_s)
        id = self._fresh_id()
        with callers_mistakes():
            frame = self._codec.send(id, data)
        self._waiting[id] = None
        try:
            self._link.send(frame, deadline)
            while (response := self._waiting[id]) is None:
                self._read_or_raise(deadline, "did not respond to a SEND")
            return response
        finally:
            del self._waiting[id]

    def post(self, data: bytes, timeout_s: float) -> None:
        """SEND data and do not wait for the response, which is dropped. Raises ``Timeout``."""
        with callers_mistakes():
            frame = self._codec.send(self._fresh_id(), data)
        self._link.send(frame, deadline_of(timeout_s))

    def receive(self, timeout_s: float) -> Request | None:
        """Return the next SEND to this client, None if none comes within ``timeout_s``."""
        deadline = deadline_of(timeout_s)
        while not self._inbox:
            if not self._read(deadline):
                return None
        return self._next_kept()

    def respond(self, request: Request, data: bytes) -> None:
        """Answer a SEND with SENDRESP (at most 65464 bytes)."""
        with callers_mistakes():
            frame = self._codec.sendresp(request.id, data)
        self._link.send(frame, deadline_of(self._timeout_s))

    def ping(self, timeout_s: float) -> float:
        """Return the seconds from PING to PONG. Raises ``Timeout``."""
        deadline = deadline_of(timeout_s)
        id = self._fresh_id()
        self._pings[id] = None
        started = time.perf_counter()
        try:
            self._link.send(self._codec.ping(id), deadline)
            while id in self._pings:
                self._read_or_raise(deadline, "did not answer a PING")
        finally:
            self._pings.pop(id, None)
        return time.perf_counter() - started

    def _await_connack(self, deadline: float) -> None:
        while self._connack is None:
            try:
                self._read_or_raise(deadline, "did not answer CONNECT")
            except ConnectionLost as error:
                if self._link.heard:
                    raise  # it says what came instead
                text = f"{self._link.address} closed the connection instead of answering CONNECT"
                raise ConnectionLost(text + self._link.doubt()) from error
        if not self._connack.accepted:
            refusal = Refusal(self._connack.code - self._dialect.accepted)
            raise Refused(
                f"{self._link.address} refused client id '{self.client_id}': {_ADVICE[refusal]}",
                refusal.value,
            )

    def _fresh_id(self) -> int:
        self._next_id = (self._next_id + 1) & 0xFFFF
        return self._next_id

    def _read_or_raise(self, deadline: float, silence: str) -> None:
        if not self._read(deadline):
            raise Timeout(f"{self._link.address} {silence} before the deadline{self._link.doubt()}")

    def _read(self, deadline: float) -> bool:
        data = self._link.read(deadline)
        if data is None:
            return False
        received_ns = time.monotonic_ns()
        for event in self._codec.receive_data(data):
            self._take(event, received_ns)
        return True

    def _take(self, event: Event, received_ns: int) -> None:
        if isinstance(event, Violation):
            raise self._link.broken(f"the broker broke LightMQ ({event.rule}: {event.reason})")
        if isinstance(event, Connack):
            if self._connack is not None:
                raise self._link.broken("the broker sent a second CONNACK")
            if event.code - self._dialect.accepted > max(refusal.value for refusal in Refusal):
                raise self._link.broken(f"the broker sent CONNACK code {event.code}, unknown")
            self._connack = event
        elif self._connack is None:
            raise self._link.broken("the broker's first frame is no CONNACK (R9)")
        elif isinstance(event, Ping):
            self._link.send(self._codec.pong(event.id), deadline_of(self._timeout_s))
        elif isinstance(event, Pong):
            # A5: a PONG without an id answers the oldest PING.
            self._pings.pop(next(iter(self._pings), -1) if event.id is None else event.id, None)
        elif isinstance(event, SendResp):
            if event.id in self._waiting:
                self._waiting[event.id] = event.data
        elif isinstance(event, Send):
            self._keep(Request(event.id, event.data, received_ns), len(event.data))


def _token(address: Address) -> str:
    """Return what CONNECT adds to the name, from the file that the address names."""
    file = address.options.get("token_file")
    if file is None:
        return ""
    if not address.client_id:
        raise BadArgument(f"{address}: a token needs a client id")
    try:
        return ":" + Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{address}: cannot use its token_file: {error}") from error
