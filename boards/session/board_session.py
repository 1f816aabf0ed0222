"""One board under check: its console and agent, its bridge, its buttons, the broker's other end."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from boards.bridge.bridge import RawBridge, ReliableBridge
from boards.bridge.poll_thread import Report
from boards.errors import RigError
from boards.faults.control import Route
from boards.flash.find_board import open_repl
from boards.inventory.target import BoardHandle
from boards.repl import NoReply, RemoteError, Repl
from boards.serial_port import PortGone
from boards.session.app_board import AppBoard
from boards.session.broker_process import QUICK, BrokerProcess, BrokerTiming
from boards.session.broker_route import BrokerRoute
from boards.session.observer import Observer, Seen
from boards.session.own_files import OwnFiles
from boards.session.plan import BoardPlan
from boards.session.serial_log import SerialLog

Bridge = RawBridge | ReliableBridge

# Longer than the keepalive, shorter than the node's silence between two tries (docs/node.md).
SILENCE_S = 2.0


def start_bridge(
    url: str, baud: int, broker: tuple[str, int], *, reliable: bool, report: Report
) -> Bridge:
    """Join the line at ``url`` (``baud`` bits/s) to ``broker``. Raises ``PortError``."""
    if reliable:
        return ReliableBridge(url, baud, *broker, report=report).start()
    return RawBridge(url, baud, *broker, silence_s=SILENCE_S, report=report).start()


def set_silence(bridge: Bridge | None, silence_s: float) -> None:
    """Have a raw bridge end a session after so long without a byte; a reliable one knows ends."""
    if isinstance(bridge, RawBridge):
        bridge.silence_s = silence_s


class AgentError(Exception):
    """The agent's step failed on the board; the text is the board's own reason."""


class AgentLink:
    """Calls steps of the agent. The board keeps the connection between calls."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl

    def call(
        self,
        name: str,
        *,
        deadline_s: float,
        on_ready: Callable[[], None] | None = None,
        goes_on: Callable[[], bool] | None = None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Run one step and return its result fields.

        ``on_ready`` is called when the board prints AGENT-READY; ``goes_on`` as ``Repl.exec`` does.
        Raises ``AgentError`` when the step failed, ``NoReply`` or ``PortGone`` when the board does
        not answer.
        """
        results: list[dict[str, Any]] = []

        def look(line: str) -> None:
            # On a console that the link shares, a frame that was cut short may stand before it.
            _, is_result, result = line.partition("AGENT {")
            if line.endswith("AGENT-READY") and on_ready is not None:
                on_ready()
            elif is_result:
                results.append(json.loads("{" + result))

        # Not escaped: MicroPython's json does not join the two halves of what is beyond \\uffff.
        text = json.dumps(arguments, ensure_ascii=False)
        code = f"import agent\nagent.run({name!r}, {text!r})"
        try:
            self._repl.exec(code, deadline_s=deadline_s, on_line=look, goes_on=goes_on)
        except RemoteError as error:
            raise AgentError(f"{name}: {error}") from error
        except ValueError as error:
            raise AgentError(f"{name}: the agent's result is no JSON: {error}") from error
        if len(results) != 1:
            raise AgentError(f"{name}: the agent printed {len(results)} results instead of one")
        if not results[0].get("ok"):
            raise AgentError(f"{name}: {results[0].get('error', 'no reason given')}")
        return results[0]


# While a check runs, the board falls silent between two calls of the REPL: no keepalive then.
BUSY_SILENCE_S = 8.0
HANG_UP_SILENCE_S = 0.5
_CALL_S = 30.0
_REPL_S = 30.0
_HUNG_UP_S = 10.0
_RESET_S = 10.0
_LOOK_S = 0.02


class CheckFailed(Exception):
    """A check came to its verdict: not as expected. The text says expected and got."""


class NotRun(Exception):
    """The check cannot be made here and now, through no fault of this board's; says why."""


@dataclass(frozen=True, slots=True)
class Group:
    """Boards that do a check together: id and protocol each, in an order that all of them see."""

    peers: Sequence[tuple[str, str]]
    token: str  # of this meeting, for its topics


class Invalid(RigError):
    """The rig could not make or prove what a check is about: there is no verdict on the board."""


@dataclass(slots=True)
class BoardSession:
    """What a check needs. A check uses one ``session`` and may call the agent within it."""

    plan: BoardPlan
    target: BoardHandle
    broker: str  # HOST:PORT of the FMQP listener, for observers
    log: SerialLog
    bridge: Bridge | None
    repl: Repl
    broker_route: BrokerRoute | None = None  # to the broker
    group: Group | None = None  # in checks that need a peer
    until: float = math.inf  # when the check's time is up, on the clock of time.monotonic
    own_files: OwnFiles | None = None  # of the board, before there was anything of the rig's
    rejoin: Callable[[Repl], None] = lambda _repl: None  # its Wi-Fi, if it has one
    is_changed: bool = False  # other files may be on the board than the rig has put there

    @property
    def is_fmqp(self) -> bool:
        """True if the board speaks FMQP, False for LightMQ."""
        return self.plan.protocol == "fmqp"

    @property
    def dies_silently(self) -> bool:
        """True if nobody closes its connection when the board dies: its network is its own.

        The bridge does that for a board on a serial line, and this machine's kernel for a virtual
        one that uses its sockets.
        """
        virtual = self.target.board.virtual
        return self.bridge is None and (virtual is None or bool(virtual.host))

    @property
    def by_tls(self) -> bool:
        """True if the board's connections are encrypted."""
        return self.broker_route is not None and self.broker_route.certificates is not None

    @property
    def route(self) -> Route:
        """The board's way through the fault proxy. Raises ``Invalid`` if it goes without."""
        if self.broker_route is None or self.broker_route.route is None:
            raise Invalid("there is no fault proxy between this board and its broker")
        return self.broker_route.route

    @contextmanager
    def disturbed(self, to: str = "") -> Iterator[Route]:
        """Give the board's line into the check's hands (see ``BrokerRoute.disturbed``)."""
        route = self.route
        if self.broker_route is None:
            raise Invalid("this board has no way to its broker")
        with self.broker_route.disturbed(route, to):
            yield route

    def own_broker(self, timing: BrokerTiming = QUICK) -> BrokerProcess:
        """Return the rig's own broker, which has deadlines of ours and may be killed."""
        if self.broker_route is None:
            raise Invalid("this board has no way to its broker")
        return self.broker_route.own_broker(timing)

    @property
    def ended_broker(self) -> str:
        """What to say if the rig's own broker has ended by itself, so that nothing is the board's
        fault; "" if it has not."""
        return "" if self.broker_route is None else self.broker_route.ended_broker

    @property
    def client_id(self) -> str:
        """The ClientID of checks, which is not the telemetry's."""
        return f"{self.plan.id}.check"

    def topic(self, check: str) -> str:
        """The topic of this board for one check."""
        return f"check/{self.plan.id}.{check}"

    def seen_at(self, topic: str) -> str:
        """Return where an observer sees what the board publishes to ``topic``."""
        return topic if self.is_fmqp else f"lightmq/{self.client_id}/up"

    def sent_to(self, topic: str) -> str:
        """Return where to publish what the board shall receive, subscribed to ``topic``."""
        return topic if self.is_fmqp else f"lightmq/{self.client_id}/down"

    def call(
        self, name: str, *, deadline_s: float = _CALL_S, while_heard: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        """Run one agent step (see ``AgentLink.call``), within the check's time.

        ``while_heard``: a board whose messages go on, one way or the other, is slow and not hung,
        and has ``deadline_s`` again. Raises ``CheckFailed`` if the check's time was up already.
        """
        left = self.until - time.monotonic()
        if left <= 0:
            raise CheckFailed(f"the check's time was up before the step {name}")
        goes_on = self._is_heard() if while_heard else None
        deadline_s = min(deadline_s, left)
        return AgentLink(self.repl).call(name, deadline_s=deadline_s, goes_on=goes_on, **arguments)

    def _is_heard(self) -> Callable[[], bool]:
        """Return what tells whether more messages went since it was asked last."""
        known = self._heard()

        def is_heard() -> bool:
            nonlocal known
            before, known = known, self._heard()
            return before != known and time.monotonic() < self.until

        return is_heard

    def _heard(self) -> tuple[int, ...]:
        """Return what has gone by the proxy and by the bridge so far: numbers that only grow."""
        way = self.broker_route
        traces = way.route.traces() if way is not None and way.route is not None else []
        last = traces[-1:]
        gone = [each for one in last for each in (one.to_broker_bytes, one.to_client_bytes)]
        if self.bridge is not None:
            gone += [self.bridge.counters.to_broker_bytes, self.bridge.counters.to_board_bytes]
        return (*(one.number for one in last), *gone)

    def connect(self, will: tuple[str, str] | None = None, **options: Any) -> None:
        """Connect the board, after its last session was seen to end; ``will``: topic and text.

        ``options`` go before node.json (docs/node.md).
        """
        if self.bridge is not None:
            if not self.bridge.wait_idle(_HUNG_UP_S):
                raise CheckFailed("the bridge's last session did not end; the board still sends")
            set_silence(self.bridge, BUSY_SILENCE_S)
        self.call(
            "connect", client_id=self.client_id, will=will, timeout_ms=10_000, options=options
        )

    @contextmanager
    def session(self) -> Iterator[None]:
        """Connect the board for the block and close cleanly at its end."""
        self.connect()
        yield
        self.hang_up()

    def hang_up(self) -> int:
        """Close the board's connection cleanly; return when that was asked for, monotonic ns.

        On a raw bridge the line just falls silent, and the bridge closes its side.
        """
        closed_ns = time.monotonic_ns()
        self.call("close")
        set_silence(self.bridge, HANG_UP_SILENCE_S)
        return closed_ns

    def kill(self) -> int:
        """End the connection abruptly; return the monotonic time of the kill in ns.

        Behind the bridge its TCP side is reset (RST); a board with sockets of its own is reset.
        Raises ``Invalid`` if there was nothing to kill: then a will proves nothing.
        """
        if self.bridge is not None:
            killed_ns = time.monotonic_ns()
            if not self.bridge.cut():
                raise Invalid("the session had ended before it was cut")
            return killed_ns
        return self.reset()

    def reset(self) -> int:
        """Press RESET, or have ``machine.reset()`` do it; return when, monotonic ns.

        On a raw bridge the session ends when the line has been silent for half a second.
        """
        if self.bridge is not None:
            set_silence(self.bridge, HANG_UP_SILENCE_S)
        control = self.target.buttons
        if control is None:
            return self._reset_by_itself()
        boots = control.state()["boots"]
        killed_ns = time.monotonic_ns()
        control.reset()
        until = time.monotonic() + _RESET_S
        while control.state()["boots"] == boots:
            if time.monotonic() > until:
                raise Invalid("the board was not reset")
            time.sleep(_LOOK_S)
        return killed_ns

    def power(self, *, on: bool) -> int:
        """Cut the board's power, or give it back; return when that was begun, monotonic ns.

        A switch of a hub takes its time to say that it is done, and the board is off long before.
        Raises ``PowerError``, ``BoardError``.
        """
        began_ns = time.monotonic_ns()
        self.target.power(on=on)
        control = self.target.buttons
        if control is not None and (control.state()["state"] == "held") == on:
            raise Invalid(f"the board was not switched {'on' if on else 'off'}")
        return began_ns

    def _reset_by_itself(self) -> int:
        """``machine.reset()`` closes no socket: to the broker the board falls silent."""
        killed_ns = time.monotonic_ns()
        with contextlib.suppress(NoReply, PortGone):  # it goes without a farewell
            self.repl.exec("import machine\nmachine.reset()", deadline_s=1.0)
            raise Invalid("the board was not reset")
        return killed_ns

    def recover(self) -> None:
        """Get a REPL again, and its network, whatever the last check did.

        Raises ``NoReply``, ``PortError``, ``WifiError``.

        A check that failed half-way may have left the board connected, or busy.
        """
        self.until = math.inf
        self.repl.close(friendly=False)
        self.repl = open_repl(self.target, deadline_s=_REPL_S, tap=self.log.tap)
        self.rejoin(self.repl)  # who opens the REPL of a board that boots interrupts its boot.py
        self.hang_up()

    @contextmanager
    def app(self) -> Iterator[AppBoard]:
        """Give the board to the block, to run a program of the user's own on it.

        Afterwards it is stopped, and checks find their REPL again. What it has in place of the
        node's files the run puts right before it needs them.
        """
        self.repl.close()
        app = AppBoard(self.target, self.log, self.own_files)
        try:
            yield app
        finally:
            app.close()
            self.is_changed = True
            self.recover()

    def observe(self, topic: str) -> Observer:
        """Return an observer of ``topic``, to be used in a ``with`` block."""
        return Observer(self.broker, topic)


def expect_texts(expected: list[str], seen: list[Seen]) -> None:
    """Raise ``CheckFailed`` unless exactly ``expected`` arrived, in order."""
    got = [message.text for message in seen]
    if got == expected:
        return
    missing = [text for text in expected if text not in got]
    extra = [text for text in got if text not in expected]
    raise CheckFailed(
        f"expected {len(expected)} messages in order, got {len(got)}"
        + (f"; missing {missing[:3]}" if missing else "")
        + (f"; unexpected {extra[:3]}" if extra else "")
        + (f"; as they came: {got[:4]}" if not missing and not extra else "")
    )
