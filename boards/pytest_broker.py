"""The broker of a pytest session as a test sees it, and what happens on a board's way to it."""

from collections.abc import Mapping

from boards.faults.control import Mode, ProxyControl, Route
from boards.faults.trace import How
from boards.session.plan import Protocol
from boards.session.run_brokers import RunBrokers, host_and_number
from host_broker.address import host_and_port
from host_broker.client import Client, Message, Subscribing, connect

PROTOCOLS: tuple[Protocol, ...] = ("fmqp", "lightmq")
_ANSWER_S = 30.0


class RigSubscription:
    """What a test hears of the topics it has subscribed to, from what was retained on."""

    def __init__(self, subscribing: Subscribing) -> None:
        self._subscribing = subscribing

    def receive(self, timeout_s: float = _ANSWER_S) -> Message | None:
        """Return the next message (docs/python.md); None if none comes within ``timeout_s``."""
        return self._subscribing.receive(timeout_s)


class RigBroker:
    """The session's broker, with a client of this test's own. Closed at the end of the test."""

    def __init__(self, addresses: RunBrokers) -> None:
        self.fmqp = addresses.fmqp  # HOST:PORT, as boards reach it
        self.lightmq = addresses.lightmq
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """An FMQP client of the broker (docs/python.md). Raises ``ClientError``."""
        if self._client is None:
            self._client = connect(f"fmqp://{self.fmqp}", timeout_s=_ANSWER_S)
        return self._client

    def subscribe(self, *patterns: str) -> RigSubscription:
        """Subscribe to topics, of LightMQ boards too (``lightmq/NAME/up``); it is active then.

        Raises ``ClientError``.
        """
        return RigSubscription(self.client.subscribe(*patterns, confirm=True))

    def publish(self, topic: str, payload: str | bytes, *, retain: bool = False) -> None:
        """Publish; the broker has processed it then. Raises ``ClientError``."""
        data = payload.encode() if isinstance(payload, str) else payload
        self.client.publish(topic, data, retain=retain, confirm=True)

    def close(self) -> None:
        """End the client."""
        if self._client is not None:
            self._client.close()
            self._client = None


class RigFaults:
    """A board's way to the broker, which a test can disturb: a board that connects to ``fmqp`` or
    ``lightmq`` here instead of the broker's own. At the end of the test nothing is disturbed.
    """

    def __init__(self, routes: Mapping[Protocol, Route]) -> None:
        self._routes = routes

    @property
    def fmqp(self) -> str:
        """Where the board finds the broker for FMQP, HOST:PORT."""
        return host_and_port(*self._routes["fmqp"].address)

    @property
    def lightmq(self) -> str:
        """The same for LightMQ."""
        return host_and_port(*self._routes["lightmq"].address)

    def cut(self, how: How = "rst") -> int:
        """End the board's connections now, by RST or by FIN; return how many there were."""
        return sum(route.cut(how)[1] for route in self._routes.values())

    def delay(self, ms: float) -> None:
        """Let everything arrive so much later from now on, each way."""
        self._set("forward", delay_ms=ms)

    def black_hole(self) -> None:
        """Let nothing through from now on, and end nothing: as a network that is gone."""
        self._set("black_hole")

    def refuse(self) -> None:
        """Turn away who connects from now on; what is connected stays."""
        self._set("refuse")

    def clear(self) -> None:
        """Disturb nothing from now on."""
        self._set("forward")

    def connections(self) -> int:
        """Return how many connections the board has opened in this session so far."""
        last = [route.traces()[-1:] for route in self._routes.values()]
        return sum(trace.number for traces in last for trace in traces)

    def _set(self, mode: Mode, delay_ms: float = 0.0) -> None:
        for route in self._routes.values():
            route.set_mode(mode, delay_ms=delay_ms)


class FaultRoutes:
    """The ways of all boards of a session, opened at their first use."""

    def __init__(self, control: ProxyControl, brokers: RunBrokers) -> None:
        self._control, self._brokers = control, brokers
        self._routes: dict[str, Mapping[Protocol, Route]] = {}

    def of(self, board: str) -> RigFaults:
        """Return the ways of the board of this id. Raises ``ProxyError``."""
        if board not in self._routes:
            self._routes[board] = {
                protocol: self._open(f"{board}.{protocol}", getattr(self._brokers, protocol))
                for protocol in PROTOCOLS
            }
        return RigFaults(self._routes[board])

    def _open(self, name: str, broker: str) -> Route:
        return self._control.route(name, host_and_number(broker)[0], broker)
