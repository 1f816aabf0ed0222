"""Runs the pure broker: what sockets say goes in, what it returns is done, once a turn."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from host_broker.access.access import Peer
from host_broker.access.principal import Principal
from host_broker.access.sessions import LoginSession
from host_broker.broker import Broker
from host_broker.bus.queue import read_place
from host_broker.net.access.passwords import PasswordChecks
from host_broker.net.answerer import LATER, Answerer
from host_broker.net.asked import Asked
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.dialer import Dialer
from host_broker.net.connection.idle_timeout import IdleTimeout
from host_broker.net.connection.memory import BufferMemory
from host_broker.net.connection.poller import Poller
from host_broker.net.connection.stalls import StallHistory
from host_broker.net.history import Recent
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.writer import Journal
from host_broker.net.listening.slots import Evicted
from host_broker.net.live_settings import LiveSettings
from host_broker.net.rate_limited_log import RateLimitedLog
from host_broker.net.storage.message_store import NO_CHANGES, Changes, Entry, MessageStoreError
from host_broker.net.storage.protocol_tables import LOOK_S, TableWatch
from host_broker.net.timer import Timer
from host_broker.outputs import (
    Close,
    ConnectionId,
    Denial,
    ExtraOutputs,
    Failure,
    Forward,
    Login,
    Outgoing,
    Outputs,
    Record,
)
from host_broker.pages import PageRequest
from host_broker.protocol import ProtocolSpec
from host_broker.questions import NoAnswer, Question
from host_broker.registry import protocols
from host_broker.settings import NetSettings
from host_broker.stats import Dropped
from host_broker.tables import Rows

_log = logging.getLogger(__name__)

_FEW_SENDERS = 8  # more are looked up in a set
_RESTING = "resting"  # why a connection is not read: it sent too much that had to be discarded
_MOST_COMPLAINTS = 1000  # that are remembered
_FEW_BUFFERS = 4  # more, of reads of one turn, are joined
_NOBODY_HUNG_UP_S = 1.0  # until it is looked again who has, of all connections
_GOODBYE_S = 5.0  # for TLS peers to say that they have read our last word


@dataclass(slots=True)
class Withheld:
    """What a connection has published that is not to be journalled yet."""

    records: list[Record] = field(default_factory=list)
    retained: dict[bytes, Entry | None] = field(default_factory=dict)


class Server:
    """The broker's connections. One event loop, no task per connection.

    Whatever comes in, from plain sockets, TLS or parts of this process, goes to the broker at once;
    what the broker wants done is done at the end of the turn of the event loop (``_run``).

    What a connection is sent because of its own reads is an answer. It goes out when what the
    connection has published is where ``journal.ack`` says, and so does what follows it.

    Publications are lossless, unless a listener's policy for slow receivers says otherwise: a
    connection that publishes to a receiver above ``net.outbox_high_bytes``, or while the journal is
    ``full``, is read no further until that is over. A receiver that stalls for
    ``net.stalled_receiver_s`` is disconnected.
    """

    def __init__(
        self,
        broker: Broker,
        live: LiveSettings,
        poller: Poller,
        journal: Journal | None,
        on_signal: Callable[[str], None] | None = None,
        passwords: PasswordChecks | None = None,
    ) -> None:
        """``on_signal`` is called when a client asks for the end: ``stop`` or ``terminate``.
        ``passwords`` checks those of users."""
        self.memory = BufferMemory(live, poller)
        self.disconnected: Counter[str] = Counter()  # by the edge, by reason
        self.held: Counter[str] = Counter()  # how often somebody was read no further, by reason
        self.failures: Counter[str] = Counter()  # by part
        self._live = live
        self._on_signal = on_signal
        self._broker = broker
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self.connections: dict[ConnectionId, Connection] = {}
        self._last_id = 0
        self._asked: dict[ConnectionId, Asked] = {}
        self._tables: TableWatch | None = None
        self._keepers: dict[str, ConnectionId] = {}  # who is told of a protocol's tables
        self._complaints: set[str] = set()  # that are in the log already
        # What this turn brought, while receivers are sent it: it gets the journal's next position.
        self._announced: tuple[list[Record], Changes, Changes] | None = None
        self._position = 0  # the journal's, of the latest turn that has one
        self._held_by_journal: set[Connection] = set()
        self._withheld: dict[ConnectionId, Withheld] = {}
        self._next_eviction = 0.0
        self._answering: dict[Connection, None] = {}  # those whose answers wait for the journal
        self.unflushed: list[Connection] = []  # will write at the end of this turn
        self._poller = poller
        self._run_is_due = False  # after the callbacks of the event loop
        self._now = time.monotonic()  # of this turn
        self._stalls = StallHistory(live.net.stalled_receiver_s)
        self._dialer = Dialer(
            poller,
            lambda outgoing: Connection(self, outgoing.protocol, dialed=outgoing.tag),
            self.not_reached,
        )
        self._filters_log = RateLimitedLog(self._loop.call_later, "failures of filters")
        self._extensions_log = RateLimitedLog(self._loop.call_later, "failures of extensions")
        self._denials_log = RateLimitedLog(self._loop.call_later, "refusals")
        self._passwords = passwords
        self._logins: set[asyncio.Task[None]] = set()
        self.answerer: Answerer | None = None  # of what protocols ask; set before anybody comes
        self._looking: set[asyncio.Task[None]] = set()
        self.recent: Recent | None = None  # what is remembered without a journal
        poller.turns(self._run, self._loop.call_exception_handler)
        self._timer = Timer(self._loop, self._tick)
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._closing = False  # all connections, for good

    def log_denial(self, denial: Denial) -> None:
        """Log what somebody may not do, not too often."""
        text = f"{denial.who} may not {denial.action} {denial.where}"
        self._denials_log.write(denial.who, denial.action, text)

    # ---- called by connections ----

    @property
    def settings(self) -> NetSettings:
        """The settings as they are now."""
        return self._live.net

    def opened(self, connection: Connection, peer: Peer) -> None:
        """Take a new connection, or close it when it comes too late."""
        if self._closing:
            connection.ended = True
            connection.transport.abort()
            return
        self._last_id += 1
        connection.id = self._last_id
        self.connections[connection.id] = connection
        self._all_gone.clear()
        self._enter()
        try:
            self._broker.opened(
                connection.id,
                connection.protocol,
                self._now,
                connection.local,
                peer=peer,
                slow=connection.slow,
                dialed=connection.dialed,
            )
        except Exception:
            # asyncio closes a connection whose read failed, but not one that failed to begin.
            connection.transport.abort()
            raise

    def received(self, connection: ConnectionId, data: bytes) -> None:
        """Hand one read to the broker."""
        poller = self._poller
        if poller.in_turn:
            self._now = poller.turn_began
        else:
            self._enter()
        self._broker.received(connection, data, self._now)

    def ended(self, connection: Connection) -> None:
        """Tell the broker, once, that a connection is over: wills run now."""
        if not connection.ended:
            connection.ended = True
            self._enter()
            # Who goes before it has taken all does without the rest; but not if it is we who go.
            is_sent = not self._broker.is_ending or connection.is_all_sent
            self._broker.closed(connection.id, self._now, is_sent=is_sent)
            # What others have said to it until now is still sent.
            self._run()
            connection.left = True

    def lost(self, connection: Connection) -> None:
        """Forget a connection whose socket is closed."""
        self.ended(connection)
        self._held_by_journal.discard(connection)
        self._answering.pop(connection, None)
        self.connections.pop(connection.id, None)
        if not self.connections:
            self._all_gone.set()

    def proceed_soon(self, connection: Connection) -> None:
        """Have the broker go on with a connection that has taken what it was sent."""
        self._loop.call_soon(self._proceed, connection)

    def congestion_changed(self, connection: Connection) -> None:
        """Tell the broker whether a connection takes more: what a queue has must not wait in it."""
        self._enter()
        self._broker.congested(connection.id, connection.congested, self._now)

    def gave_up(self, connection: Connection, reason: str, rule: str = "slow") -> None:
        """Disconnect a receiver that holds its publishers up; ``rule`` is what it is counted as."""
        _log.warning("connection %d is closed: %s", connection.id, reason)
        self.disconnected[rule] += 1
        connection.transport.abort()

    def stalled(self, connection: Connection, grace_s: float) -> None:
        """Disconnect a receiver that took too little; if publishers may have waited for it, the
        next of its peer has less time."""
        if connection.congested:
            self._stalls.add(connection.peer, time.monotonic())
        reason = f"it took too little for {grace_s:g} s"
        self.gave_up(connection, reason, "net.stalled_receiver_s")

    def stalled_behind(self, connection: Connection, grace_s: float) -> None:
        """Disconnect a receiver that did not catch up; the next of its peer has less time."""
        self._stalls.add(connection.peer, time.monotonic())
        text = "connection %d is closed: publishers had to wait %g s for it; it did not catch up"
        _log.warning(text, connection.id, grace_s)
        self.disconnected["net.stalled_receiver_s"] += 1
        self._enter()
        self._broker.stalled(connection.id, grace_s, self._now)

    def left_stalling(self, connection: Connection, waited_s: float) -> None:
        """Note that a receiver left while publishers waited for it: no way to have more time."""
        self._stalls.add_left(connection.peer, waited_s, time.monotonic())

    def stall_grace_s(self, connection: Connection) -> float:
        """Return how long a receiver may take nothing while others wait for it."""
        return self._stalls.grace_s(connection.peer, time.monotonic())

    def is_verbatim(self, protocol: str) -> bool:
        """Whether what connections of a protocol are sent are publications in stored form."""
        return self._broker.is_stored_form(protocol)

    def dropped_by(self, protocol: str) -> Dropped:
        """Return the count of what slow receivers of a protocol were not sent."""
        return self._broker.stats.dropped_of(protocol)

    # ---- called by parts of this process ----

    def open_internal(self, spec: ProtocolSpec, principal: Principal | None = None) -> ConnectionId:
        """Return a connection to the broker that has no socket, and acts for ``principal``."""
        self._last_id += 1
        self._enter()
        self._broker.opened(
            self._last_id,
            spec.name,
            self._now,
            loopback=False,
            internal=True,
            principal=principal,
        )
        return self._last_id

    def ask(self, spec: ProtocolSpec, request: PageRequest, principal: Principal) -> Asked:
        """Ask a protocol for one of its pages on behalf of ``principal``; call ``end_asked``."""
        asked = Asked(self.open_internal(spec, principal))
        self._asked[asked.connection] = asked
        if self._closing or self._broker.is_ending:
            asked.failed("the broker is stopping")
        else:
            self._enter()
            self._broker.asked(asked.connection, request, self._now)
        return asked

    def not_reached(self, outgoing: Outgoing, reason: str) -> None:
        """Tell the broker that another broker is not there."""
        self._enter()
        self._broker.not_reached(outgoing.connection, outgoing.tag, reason, self._now)

    def is_suspended(self, asked: Asked) -> bool:
        """Whether something of what was asked waits until the broker may search on."""
        return self._broker.is_suspended(asked.connection)

    def end_asked(self, asked: Asked) -> None:
        """Forget a page, answered or not."""
        if self._asked.pop(asked.connection, None) is not None:
            self._enter()
            self._broker.closed(asked.connection, self._now)

    def watch_tables(self, tables: TableWatch) -> None:
        """Tell protocols what is in their tables, now and whenever somebody changes it."""
        self._tables = tables
        self._look_at_tables()

    def _look_at_tables(self) -> None:
        if self._tables is None or self._closing or self._broker.is_ending:
            return
        # What rows have asked for is done before the next ones are told: they may undo it.
        if not any(map(self._broker.is_suspended, self._keepers.values())):
            self._tables.look(self._tell_rows)
        self._loop.call_later(LOOK_S, self._look_at_tables)

    def _tell_rows(self, name: str, found: Mapping[str, Rows]) -> None:
        keeper = self._keepers.get(name)
        if keeper is None:
            keeper = self._keepers[name] = self.open_internal(protocols()[name])
        self._enter()
        self._broker.rows_changed(keeper, found, self._now)

    @contextmanager
    def withheld(self, connection: ConnectionId) -> Iterator[Withheld]:
        """Collect what a connection publishes meanwhile, instead of journalling it."""
        withheld = self._withheld[connection] = Withheld()
        try:
            yield withheld
        finally:
            del self._withheld[connection]

    def proceed_internal(self, connection: ConnectionId) -> None:
        """Have the broker go on with what a connection without a socket asked for."""
        self._enter()
        self._broker.proceed(connection, self._now)

    # ---- called by the service ----

    def access_changed(self) -> None:
        """Have the broker look again who may do what."""
        self._enter()
        self._broker.access_changed(self._now)

    def web_session_ended(self, session: LoginSession) -> None:
        """Have connections end, soon, that are who they are by a session of our pages; it may be
        the broker that has found it to be over."""
        if session.connections:
            self._loop.call_soon(self._end_with, session)

    def _end_with(self, session: LoginSession) -> None:
        self._enter()
        self._broker.web_session_ended(session, self._now)

    def journal_progressed(self) -> None:
        """Send what waited for the journal, and go on reading from those who waited for it."""
        journal = self._journal
        if journal is None:
            return
        if self._answering:
            kept = journal.kept
            answering, self._answering = self._answering, {}
            for connection in answering:
                try:
                    connection.send_kept(kept)
                except Exception as error:
                    self._failed(connection, error)
                if connection.waits_for_journal:
                    self._answering[connection] = None
            if self._answering:
                journal.hurry()
        if self._held_by_journal and not journal.full:
            held, self._held_by_journal = self._held_by_journal, set()
            for connection in held:
                connection.release(journal)

    def watch_idleness(self, protocol: str, timeout_s: float) -> None:
        """From now on close connections of ``protocol`` from which nothing comes that long."""
        IdleTimeout(self.connections, protocol, timeout_s, self._close_idle).start(self._loop)

    async def stop(self, drain_s: float, close_listeners: Callable[[], None]) -> None:
        """End as FMQP R33 to R38 say; those listeners are closed already that answer nobody (R33).

        Read no more (R34), wait until all is sent (R35), run all wills (R36), wait until they are
        sent (R37), ``close_listeners``, close (R38). Each wait is at most ``drain_s``; what was not
        taken by then is dropped with its connection.
        """
        self._dialer.close()
        self._broker.stopping()
        self._timer.cancel()
        self._run()
        self._answer_nobody()
        for connection in self.connections.values():
            connection.hold(self)
        await self._answer_all(drain_s)
        if not await self._drain(drain_s):
            self.abort()  # or the next wait would be for the same sleepers
            await asyncio.sleep(0)  # their wills run when asyncio has closed them
        remaining = list(self.connections.values())
        self._broker.sent_all({each.id for each in remaining if each.is_all_sent})
        for connection in remaining:
            connection.ended = True
        self._broker.stop(time.monotonic())
        self._run()
        await self._answer_all(drain_s)
        is_drained = await self._drain(drain_s)
        self._broker.sent_all({each.id for each in remaining if each.is_all_sent})
        self._run()
        if not is_drained:
            self.abort()
        close_listeners()
        self._closing = True
        for connection in list(self.connections.values()):
            connection.close()
        try:
            await asyncio.wait_for(self._all_gone.wait(), _GOODBYE_S)
        except TimeoutError:
            self.abort()
            await self._all_gone.wait()

    async def terminate(self) -> None:
        """End at once: no wills, nothing more is sent (FMQP R31)."""
        self._closing = True
        self._dialer.close()
        self._timer.cancel()
        self._answer_nobody()
        for connection in self.connections.values():
            connection.ended = True
            connection.transport.abort()
        await self._all_gone.wait()

    def _answer_nobody(self) -> None:
        """Say to those who wait for a page that there will be none."""
        for asked in self._asked.values():
            if not asked.is_answered:
                asked.failed("the broker is stopping")

    async def _answer_all(self, deadline_s: float) -> None:
        """Wait until no answer waits for the journal; those that still do then are not given."""
        journal = self._journal
        if journal is None or not self._answering:
            return
        try:
            await journal.reach(journal.appended, deadline_s)
        except (TimeoutError, JournalError, MessageStoreError):
            _log.warning(
                "%d connections are not answered: the journal does not have what they published",
                len(self._answering),
            )
            for connection in self._answering:
                connection.drop_unkept()
            self._answering.clear()

    async def _drain(self, deadline_s: float) -> bool:
        """Wait until the kernel has taken everything; False if some was left at the deadline."""
        waits = [connection.drained() for connection in self.connections.values()]
        if not waits:
            return True
        _, late = await asyncio.wait(waits, timeout=deadline_s)
        return not late

    def abort(self) -> None:
        """Reset every connection that has something left, sending nothing more."""
        connections = [each for each in self.connections.values() if each.congested]
        if connections:
            _log.warning("%d connections were reset, unsent messages are lost", len(connections))
        for connection in connections:
            connection.transport.abort()

    # ---- turns ----

    def _enter(self) -> None:
        """Before the broker is called: what it wants done is done at the end of this turn."""
        if self._poller.in_turn:
            self._now = self._poller.turn_began
            return
        self._now = time.monotonic()
        if not self._run_is_due:
            self._run_is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Do what the broker wants done for all that came in since the last time."""
        self._run_is_due = False
        outputs = self._broker.take()
        records, extra = outputs.records, outputs.extra
        if extra is not None:
            if extra.changes and self._tables is not None:
                self._tables.write(extra.changes)
            for complaint in extra.complaints:
                self._complain(complaint)
        if records and self.recent is not None:
            self.recent.add(time.time_ns(), records)
        if self._journal is not None:
            if extra is not None:
                self._announce_all(self._journal, outputs, extra)
            elif records:
                if self._withheld:
                    self._withhold_records(records)
                if records:
                    self._announce(records, NO_CHANGES, NO_CHANGES)
        if extra is not None:
            for identity in extra.kept_first:
                waiting = self.connections.get(identity)
                if waiting is not None:
                    waiting.position = self._position
        for forward in outputs.forwards:
            self._forward(forward)
        if self.unflushed:
            connections, self.unflushed = self.unflushed, []
            for connection in connections:
                try:
                    connection.flush()
                except Exception as error:
                    self._failed(connection, error)
        if extra is not None and extra.paced:
            self._forget_sent(extra)
        if self._announced is not None:
            self._keep_announced()
        if extra is not None:
            self._do_extra(extra)
        if self._answering and self._journal is not None:
            self._journal.hurry()
        deadline = self._broker.next_deadline()
        if deadline is not None:
            self._timer.set(deadline)

    def _announce_all(self, journal: Journal, outputs: Outputs, extra: ExtraOutputs) -> None:
        """Announce what is to be journalled of a turn; what is to be kept first is kept."""
        records, retained, queued = outputs.records, extra.retained, extra.queued
        if not (records or retained or queued):
            return
        if self._withheld:
            self._withhold_records(records)
            self._withhold_retained(extra)
        if extra.queued_first:
            first = {place: each for place, each in queued.items() if not read_place(place)[1]}
            self._announce([], {}, first)
            self._keep_announced()
            if not journal.keep_now():
                self._have_consumers_wait(outputs.forwards)
            for place in first:
                del queued[place]
        if records or retained or queued:
            self._announce(records, retained, queued)

    def _forget_sent(self, extra: ExtraOutputs) -> None:
        """Have what of queues was on its way in this turn, and is sent, forgotten."""
        done_with: dict[bytes, Entry | None] = {}
        for place in self._sent(extra.paced):
            if self._announced is None:
                done_with[place] = None
            elif extra.queued.pop(place, None) is None:  # else it has come in this turn, too
                extra.queued[place] = None
        if done_with:
            self._announce([], {}, done_with)

    def _do_extra(self, extra: ExtraOutputs) -> None:
        """Do what is done when everybody was sent what there is."""
        for close in extra.closes:
            self._close(close)
        if extra.failures:
            self._log_failures(extra.failures)
        self._hold_and_release(extra.rests, extra.holds, extra.releases)
        for identity, all_sent in extra.paced.items():
            paced = self.connections.get(identity)
            if paced is not None:
                paced.pace(all_sent=all_sent)
        for identity, answer in extra.answers:
            if identity in self._asked:
                self._asked[identity].answered(answer)
        for number, question in extra.questions:
            self._answer_question(number, question)
        for outgoing in extra.outgoing:
            self._dialer.dial(outgoing)
        for identity, is_behind in extra.behind.items():
            if identity in self.connections:
                self.connections[identity].be_behind(is_behind)
        for identity in extra.suspects:
            self._end_if_hung_up(identity)
        for login in extra.logins:
            self._log_in(login)
        for denial in extra.denials:
            self.log_denial(denial)
        if extra.signal and self._on_signal is not None:
            _log.warning("$/signals/%s came from %s", extra.signal, extra.signalled_by)
            self._on_signal(extra.signal)

    def _have_consumers_wait(self, forwards: Iterable[Forward]) -> None:
        """What queues give in this turn is to wait for the journal, as if it were an answer."""
        for forward in forwards:
            for identity in forward.receivers:
                consumer = self.connections.get(identity)
                if consumer is not None and identity in forward.senders:
                    consumer.position = self._position

    def _answer_question(self, number: int, question: Question) -> None:
        """Answer at once what is known here; have the rest looked for."""
        if self.answerer is None:
            self._answered(number, NoAnswer("there is nobody who knows"))
            return
        answer = self.answerer.at_once(question)
        if answer is not LATER:
            self._answered(number, answer)
            return
        task = self._loop.create_task(self._look_for(number, question))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_for(self, number: int, question: Question) -> None:
        assert self.answerer is not None  # noqa: S101 - for mypy
        try:
            answer = await self.answerer.look(question)
        except Exception as error:
            self._log_failure("a question could not be answered", 0, error)
            answer = NoAnswer("the broker failed to look; its log says why")
        self._answered(number, answer)

    def _answered(self, number: int, answer: object) -> None:
        self._enter()
        self._broker.answered(number, answer, self._now)

    def _log_in(self, login: Login) -> None:
        """Have a secret looked at, elsewhere."""
        task = self._loop.create_task(self._check(login))
        self._logins.add(task)
        task.add_done_callback(self._logins.discard)

    async def _check(self, login: Login) -> None:
        right = None
        if self._passwords is not None:
            right = await self._passwords.check(login.encoded, login.secret)
        self._enter()
        self._broker.logged_in(login.connection, right, self._now)

    def _forward(self, forward: Forward) -> None:
        connections = self.connections
        buffers, senders = forward.buffers, forward.senders
        if len(buffers) > _FEW_BUFFERS:  # joined once, for all receivers
            buffers = [b"".join(buffers)]
        kept = self._journal.kept if self._journal is not None else 0
        unkept = bool(self._answering) or self._position > kept
        untried = True
        asking = frozenset(senders) if unkept and len(senders) > _FEW_SENDERS else senders
        for identity in forward.receivers:
            receiver = connections.get(identity)
            if receiver is None:
                continue
            try:
                is_answer = unkept and (
                    (receiver.position > kept and identity in asking)
                    or (bool(self._answering) and receiver.waits_for_journal)
                )
                if is_answer and untried:
                    untried = False
                    is_answer = unkept = not self._all_is_kept()
                if is_answer:
                    receiver.send_when_kept(receiver.position, buffers, senders)
                    self._answering[receiver] = None
                else:
                    receiver.send(buffers, senders)
            except Exception as error:
                self._failed(receiver, error)

    def _all_is_kept(self) -> bool:
        """Have the journal keep what it can at once; whether that is all, and nobody waits."""
        if self._journal is not None:
            self._keep_announced()
            if not self._journal.keep_now():
                return False
            if self._answering:
                self.journal_progressed()
        return not self._answering

    def _complain(self, text: str) -> None:
        """Log what is wrong in somebody's tables, once."""
        if text not in self._complaints:
            if len(self._complaints) >= _MOST_COMPLAINTS:
                self._complaints.clear()
            self._complaints.add(text)
            _log.warning("%s", text)

    def _failed(self, connection: Connection, error: Exception) -> None:
        """Disconnect a connection that cannot be written to; the others of the turn are served."""
        self.disconnected["not writable"] += 1
        self._log_failure("a connection could not be written to", connection.id, error)
        connection.transport.abort()

    def _log_failure(self, what: str, connection: ConnectionId, error: Exception) -> None:
        message = f"{what} (connection {connection})" if connection else what
        self._loop.call_exception_handler({"message": message, "exception": error})

    def _log_failures(self, failures: Iterable[Failure]) -> None:
        """Log a session's or server's failure with its traceback; a filter's, which may fail for
        every publication, and an extension's, for every client, as one line."""
        for failure in failures:
            self.failures[failure.part] += 1
            if failure.part == "filter":
                whose = f"connection {failure.connection}" if failure.connection else "a queue"
                error = failure.error
                text = f"a filter of {whose} failed, which counts as unwanted: {error!r}"
                self._filters_log.write(whose, type(error).__name__, text)
            elif failure.part == "extension":
                whose, error = f"connection {failure.connection}", failure.error
                # What it was about may be the peer's words, of which there are any number.
                reason = type(error.__cause__ or error).__name__
                text = f"{whose} is closed: {error}"
                self._extensions_log.write(whose, reason, text)
            else:
                what = "a session failed" if failure.connection else "a protocol's server failed"
                self._log_failure(what, failure.connection, failure.error)

    def _hold_and_release(
        self,
        rests: dict[ConnectionId, float],
        holds: Iterable[tuple[ConnectionId, str]],
        releases: Iterable[tuple[ConnectionId, str]],
    ) -> None:
        connections = self.connections
        for identity, rest_s in rests.items():
            resting = connections.get(identity)
            if resting is not None:
                resting.hold(_RESTING)
                self.held["bus.max_discards_per_s"] += 1
                self._loop.call_later(rest_s, resting.release, _RESTING)
            elif identity in self._keepers.values():
                self._loop.call_later(rest_s, self.proceed_internal, identity)
        for identity, reason in holds:
            if identity in connections:
                self.held["queue"] += 1
                connections[identity].hold(reason)
            elif identity in self._asked:
                self.held["queue"] += 1
                self._asked[identity].hold(reason)
        for identity, reason in releases:
            if identity in connections:
                connections[identity].release(reason)
            elif identity in self._asked:
                self._asked[identity].release(reason)

    def keep(self, records: list[Record], retained: Changes) -> None:
        """Hand records and retained messages to the journal; while it is full, hold those who
        made the records."""
        if self._journal is not None and (records or retained):
            self._announce(records, retained, NO_CHANGES)
            self._keep_announced()

    def _announce(self, records: list[Record], retained: Changes, queued: Changes) -> None:
        """Say to publishers which position their records get, before the journal has them.

        Receivers need not wait while its columns are filled; answers look at the positions.
        """
        journal = self._journal
        if journal is None:
            return
        if self._announced is not None:
            self._keep_announced()
        self._announced = records, retained, queued
        position = self._position = journal.appended + 1
        connections = self.connections
        for record in records:
            publisher = connections.get(record.connection)
            if publisher is not None:
                publisher.position = position

    def _keep_announced(self) -> None:
        """Hand to the journal what was announced."""
        announced, journal = self._announced, self._journal
        if announced is None or journal is None:
            return
        self._announced = None
        records, retained, queued = announced
        journal.append(time.time_ns(), records, retained, queued)
        if journal.full:
            for record in records:
                publisher = self.connections.get(record.connection)
                if publisher is not None:
                    publisher.hold(journal)
                    self.held["journal.max_pending_bytes"] += 1
                    self._held_by_journal.add(publisher)

    def _withhold_records(self, records: list[Record]) -> None:
        """Take out of a turn those that are not to be journalled yet."""
        for identity, withheld in self._withheld.items():
            withheld.records += [each for each in records if each.connection == identity]
            records[:] = [each for each in records if each.connection != identity]

    def _withhold_retained(self, extra: ExtraOutputs) -> None:
        """Take out of a turn what is not to be remembered yet."""
        retained, by = extra.retained, extra.retained_by
        for identity, withheld in self._withheld.items():
            for topic in list(retained):
                if by[topic] == identity:
                    withheld.retained[topic] = retained.pop(topic)
                else:
                    withheld.retained.pop(topic, None)  # it is newer

    def _sent(self, paced: Mapping[ConnectionId, bool]) -> list[bytes]:
        """Return what of queues was on its way in this turn, and is sent."""
        done: list[bytes] = []
        if self._run_is_due:
            return done  # somebody may have been given more meanwhile; ``_proceed`` will see
        for identity, all_sent in paced.items():
            connection = self.connections.get(identity)
            if all_sent and connection is not None and connection.is_all_sent:
                done += self._broker.sent(identity)
        return done

    def _proceed(self, connection: Connection) -> None:
        if self._run_is_due:
            self._run()  # what was given to it before this is not sent
        if connection.ended or not connection.end_pacing():
            return
        self._enter()
        self._broker.proceed(connection.id, self._now)

    def _close(self, close: Close) -> None:
        connection = self.connections.get(close.connection)
        if connection is None:
            if close.connection in self._asked:
                self._asked[close.connection].failed(close.reason)
            return
        _log.info("connection %d is closed: %s", close.connection, close.reason)
        connection.left = True  # of many subscriptions it is taken off the bus step by step
        (connection.transport.abort if close.abort else connection.close)()
        if connection.waits_for_journal:
            # Its answers are yet to be sent; its name is free, and its wills do not wait.
            self._loop.call_soon(self.ended, connection)

    def _end_if_hung_up(self, identity: ConnectionId) -> None:
        """End a connection whose peer has gone while we let it wait, and comes back.

        What it said and nobody has read goes with it: none of that was acknowledged, and it would
        come after what the same client says from now on.
        """
        connection = self.connections.get(identity)
        if connection is not None and connection.hung_up_on_hold:
            self._end_hung_up(connection, "its name is wanted again")

    def evict_hung_up(self) -> Evicted:
        """End the oldest connection whose peer has gone while we let it wait; what it said and
        nobody has read goes with it.

        A full queue may have publishers wait for ever. Were their places not given to others, a
        consumer that comes to empty the queue could find none.
        """
        now = self._loop.time()
        if now < self._next_eviction:
            return "nobody"
        for connection in self.connections.values():
            if connection.hung_up_on_hold:
                self._end_hung_up(connection, "its place is wanted")
                return "done"
        self._next_eviction = now + _NOBODY_HUNG_UP_S
        return "nobody"

    def _end_hung_up(self, connection: Connection, why: str) -> None:
        _log.info("connection %d is closed: it hung up, and %s", connection.id, why)
        self.disconnected["hung up"] += 1
        connection.transport.abort()

    def _close_idle(self, close: Close) -> None:
        self.disconnected["idle"] += 1
        self._close(close)

    def _tick(self) -> None:
        self._enter()
        self._broker.tick(self._now, self._perhaps_unread, self._hung_up_on_hold)

    def _perhaps_unread(self, identity: ConnectionId) -> bool:
        connection = self.connections.get(identity)
        return connection is not None and connection.perhaps_unread()

    def _hung_up_on_hold(self, identity: ConnectionId) -> bool:
        connection = self.connections.get(identity)
        return connection is not None and connection.hung_up_on_hold
