"""One socket: reads go to the server, writes are bounded by making publishers wait."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from host_broker.access.access import Peer
from host_broker.net.access.peers import peer_of
from host_broker.net.connection.memory import BufferMemory
from host_broker.net.connection.overflow import Overflow, Policy
from host_broker.net.connection.tuning import has_hung_up, is_local, peer_name, tune
from host_broker.outputs import Buffer, ConnectionId
from host_broker.settings import NetSettings
from host_broker.stats import Dropped

_log = logging.getLogger(__name__)

# Back-pressure acts between reads. Within one, a client can ask for many answers; this much is more
# than an honest one asks for.
_LARGEST_WRITE_BYTES = 128 * 1024 * 1024

# What is sent within one turn of the event loop is one write: a hundred reads of one publication
# each would otherwise be a hundred system calls. This much is worth a write of its own.
_WORTH_WRITING_BYTES = 64 * 1024

# While memory is short (``net.max_buffered_bytes``), a receiver with more than this is congested.
_SHORT_BYTES = 64 * 1024

# While the broker hands out a long answer step by step, the next step comes below this mark.
_PACED_BYTES = 64 * 1024


class ConnectionOwner(Protocol):
    """What a connection asks of whoever runs the broker; ``Server`` says what each call does."""

    memory: BufferMemory
    unflushed: "list[Connection]"
    held: Counter[str]

    @property
    def settings(self) -> NetSettings: ...
    @property
    def connections(self) -> "Mapping[ConnectionId, Connection]": ...
    def opened(self, connection: "Connection", peer: Peer) -> None: ...
    def received(self, connection: ConnectionId, data: bytes) -> None: ...
    def ended(self, connection: "Connection") -> None: ...
    def lost(self, connection: "Connection") -> None: ...
    def proceed_soon(self, connection: "Connection") -> None: ...
    def congestion_changed(self, connection: "Connection") -> None: ...
    def gave_up(self, connection: "Connection", reason: str) -> None: ...
    def stalled(self, connection: "Connection", grace_s: float) -> None: ...
    def stalled_behind(self, connection: "Connection", grace_s: float) -> None: ...
    def stall_grace_s(self, connection: "Connection") -> float: ...
    def left_stalling(self, connection: "Connection", waited_s: float) -> None: ...
    def is_verbatim(self, protocol: str) -> bool: ...
    def dropped_by(self, protocol: str) -> Dropped: ...


@dataclass(slots=True)
class _Waiting:
    """What is sent when the journal has kept everything up to ``position``."""

    position: int
    buffers: list[Buffer]
    size: int
    senders: list[ConnectionId]


class Connection(asyncio.Protocol):
    """A socket of the broker.

    Back-pressure: while ``congested`` (more than the high mark waits to be sent), connections that
    publish to it are put on hold by ``hold``; they go on when it has drained below the low mark.
    With another policy than ``pause`` messages of others are dropped then, or it is disconnected;
    a connection that congests itself waits for itself. One that takes nothing for too long while it
    is congested, or while the broker has more to tell it, has stalled and is disconnected.

    Answers wait for the journal (``send_when_kept``), and what comes after them waits behind them.
    Of that no more than the high mark: then those who publish to it are on hold, whatever the
    policy, since the delay is not the receiver's.
    """

    # There may be tens of thousands, and of more than 30 attributes each would have a dictionary of
    # its own.
    __slots__ = (
        "__weakref__",
        "_answers",
        "_answers_bytes",
        "_behind_since",
        "_behind_timer",
        "_closes_after_answers",
        "_drained",
        "_encrypted",
        "_held_by",
        "_held_lately",
        "_high",
        "_holding",
        "_low",
        "_overflow",
        "_paced_bytes",
        "_pacing",
        "_principal",
        "_senders",
        "_server",
        "_slow",
        "_stall_timer",
        "_stalling_since",
        "_tightened",
        "_unwritten",
        "_unwritten_bytes",
        "congested",
        "dialed",
        "ended",
        "heard",
        "id",
        "left",
        "local",
        "peer",
        "position",
        "protocol",
        "received_bytes",
        "sent_bytes",
        "transport",
    )

    def __init__(
        self,
        server: ConnectionOwner,
        protocol: str,
        slow: Policy = "pause",
        principal: str = "",
        dialed: object = None,
    ) -> None:
        """``principal``: who everybody is on its listener. ``dialed``: for what we connected."""
        self.id: ConnectionId = 0
        self.protocol = protocol
        self.dialed = dialed
        self.congested = False
        self.heard = True  # since the server last looked
        self.received_bytes = self.sent_bytes = 0  # since it was opened
        self.local = True  # the peer is on this machine
        self.ended = False  # the broker was told, or never knew it
        self.left = False  # it is sent no more
        self.peer = ""  # its host, or the user of a unix socket's other end
        self._principal = principal
        self.position = 0  # in the journal, of its last publication
        self.transport: asyncio.Transport
        self._server = server
        self._slow = slow
        self._overflow: Overflow | None = None  # what drops, if we drop
        self._drained: asyncio.Future[None] | None = None
        self._unwritten: list[Buffer] = []  # of this turn of the event loop
        self._unwritten_bytes = 0
        self._senders: set[ConnectionId] = set()  # whose reads asked for it
        self._held_by: set[object] = set()  # what we wait for; reading is paused while not empty
        self._held_lately = False  # since somebody asked whether anything is unread
        self._holding: set[Connection] = set()  # who waits for us
        self._answers: deque[_Waiting] | None = None  # most never have one
        self._answers_bytes = 0
        self._closes_after_answers = False
        self._pacing = False  # the broker waits for the end of what it was given to send
        self._paced_bytes = _PACED_BYTES  # that is when so little is left
        self._behind_timer: asyncio.TimerHandle | None = None
        self._behind_since = 0.0  # by the loop's clock, while that timer runs
        self._stall_timer: asyncio.TimerHandle | None = None
        self._stalling_since = 0.0  # by the loop's clock, while that timer runs
        self._encrypted = False  # by asyncio, which tells nobody what it has sent
        self._tightened = False  # memory is short
        self._high = self._low = 0  # bytes

    # ---- called by asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        settings = self._server.settings
        self._high, self._low = settings.outbox_high_bytes, settings.outbox_low_bytes
        if self._slow in ("drop-oldest", "drop-newest"):
            # Half of the outbox is the transport's, half is what can give way.
            self._high, self._low = self._high // 2, self._low // 2
            verbatim = self._server.is_verbatim(self.protocol)
            oldest = self._slow == "drop-oldest"
            self._overflow = Overflow(
                self._high, self._server.dropped_by(self.protocol), verbatim=verbatim, oldest=oldest
            )
        self.transport.set_write_buffer_limits(self._high, self._low)
        sock = transport.get_extra_info("socket")
        tune(sock, settings, patient=self._overflow is not None)
        self.local = is_local(sock)
        self.peer = peer_name(sock)
        self._server.opened(self, peer_of(transport, self._principal))

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self.received_bytes += len(data)
        if not self.ended:
            self._server.received(self.id, data)

    def eof_received(self) -> bool:
        # A FIN ends the connection for the broker now: wills do not wait for its outbox. What is
        # in the outbox is still sent (returning False has asyncio flush, then close). With TLS an
        # answer that waits cannot be: asyncio closes it in any case.
        self._server.ended(self)
        self.flush()
        if self._answers and not self._encrypted:
            self.close()
            return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwritten.clear()
        self._answers = None
        memory = self._server.memory
        memory.held -= self._answers_bytes
        self._answers_bytes = 0
        memory.forget(self)
        self._say_drained()
        if self._overflow is not None:
            memory.held -= self._overflow.waiting_bytes
        if self._overflow is not None and self._overflow.dropped.messages:
            dropped = self._overflow.dropped
            text = "connection %d was slow: %d messages (%d bytes) were dropped"
            _log.warning(text, self.id, dropped.messages, dropped.bytes)
        if self._stall_timer is not None and self._holding:
            loop = asyncio.get_running_loop()
            self._server.left_stalling(self, loop.time() - self._stalling_since)
        self._cancel_stall_timer()
        self._release_all()
        self._server.lost(self)

    def pause_writing(self) -> None:
        if self._pacing:
            # Nobody waits for it, however often it has stalled before.
            if self._stall_timer is None:
                self._look_for_stall_in(self._server.settings.stalled_receiver_s)
            self._congest_if_high()
        else:
            self._congest()

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        if self._encrypted:
            self._server.memory.note(self, self.transport.get_write_buffer_size)
        if self._tightened:
            self._tightened = False
            self.transport.set_write_buffer_limits(self._high, self._low)
        if self.congested:
            self.congested = False
            if self._overflow:
                self._write_overflow(self._overflow)
                if self.congested:
                    return  # once more; its publishers do not wait for it
            if self._answers_bytes <= self._high:
                self._release_all()
            self._say_drained()
            self._server.congestion_changed(self)
        if self._pacing and not self._answers:
            self._server.proceed_soon(self)

    # ---- called by the server ----

    def send(self, buffers: list[Buffer], senders: Sequence[ConnectionId]) -> None:
        """Send in this turn of the event loop; ``senders`` wait if that congests this receiver."""
        if not self.left:
            self._send(buffers, senders)

    def send_when_kept(
        self, position: int, buffers: list[Buffer], senders: Sequence[ConnectionId]
    ) -> None:
        """Send as soon as ``send_kept`` is called with ``position`` or more, and in order."""
        if self.left:
            return
        if self._answers is None:
            self._answers = deque()
        size = sum(map(len, buffers))
        self._answers_bytes += size
        self._server.memory.held += size
        last = self._answers[-1] if self._answers else None
        if last is not None and last.position >= position:
            last.buffers += buffers
            last.size += size
            last.senders += senders
        else:
            self._answers.append(_Waiting(position, list(buffers), size, list(senders)))
        if self._answers_bytes > self._high:
            for identity in senders:
                sender = self._server.connections.get(identity)
                if sender is not None:
                    self._holding.add(sender)
                    sender.hold(self)

    @property
    def waits_for_journal(self) -> bool:
        """Whether something waits that was to be sent."""
        return bool(self._answers)

    def send_kept(self, kept: int) -> None:
        """Send what waited for positions up to ``kept``, and do what was to be done after it."""
        answers = self._answers
        while answers and answers[0].position <= kept:
            waiting = answers.popleft()
            self._answers_bytes -= waiting.size
            self._server.memory.held -= waiting.size
            self._send(waiting.buffers, waiting.senders)
        self.flush()
        if not self.congested and self._answers_bytes <= self._low:
            self._release_all()
        if answers:
            return
        self._answers = None
        if self._closes_after_answers:
            self.transport.close()
        elif self._pacing:
            self.pace(all_sent=False)

    def drop_unkept(self) -> None:
        """The journal will never keep it: send nothing of what waits for that."""
        self._answers = None
        self._server.memory.held -= self._answers_bytes
        self._answers_bytes = 0
        self.left = True
        if self._closes_after_answers:
            self.transport.close()

    def _send(self, buffers: list[Buffer], senders: Sequence[ConnectionId]) -> None:
        if self.congested and self._slow != "pause" and self.id not in senders:
            self._too_slow(buffers)
            return
        if not self._unwritten:
            self._server.unflushed.append(self)
        size = self._unwritten_bytes
        for buffer in buffers:
            size += len(buffer)
        self._unwritten_bytes = size
        self._unwritten += buffers
        self._senders.update(senders)
        if size > _WORTH_WRITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was to be sent: one write, however many buffers."""
        buffers, size = self._unwritten, self._unwritten_bytes
        if not buffers:
            return
        self._unwritten, self._unwritten_bytes = [], 0
        self.sent_bytes += size
        if size <= _LARGEST_WRITE_BYTES:
            self.transport.writelines(buffers)
            if self._encrypted:
                self._server.memory.note(self, self.transport.get_write_buffer_size)
            if not (self.congested or self._pacing):
                self._tighten_if_short()
        else:
            self._server.gave_up(
                self, f"one read asked for more than {_LARGEST_WRITE_BYTES >> 20} MiB of answers"
            )
        if self._pacing:
            self._congest_if_high()
        if self.congested:
            self._hold_up(self._senders)
        self._senders.clear()

    def pace(self, *, all_sent: bool) -> None:
        """Have ``Server.proceed`` called when what was given to this connection is nearly sent, or
        all of it; who was to wait for all of it still does."""
        all_sent = all_sent or self._waits_for_all
        self._pacing = True
        self.flush()
        self._paced_bytes = 0 if all_sent else _PACED_BYTES
        # For asyncio's TLS as much as the mark is too much.
        high = self._paced_bytes or int(self._encrypted)
        self.transport.set_write_buffer_limits(high, high // 4)
        is_little = not self._answers and self.transport.get_write_buffer_size() <= high
        if self.is_all_sent if all_sent else is_little:
            self._server.proceed_soon(self)

    @property
    def _waits_for_all(self) -> bool:
        return self._pacing and not self._paced_bytes

    @property
    def is_all_sent(self) -> bool:
        """Whether nothing waits that was to be sent, nor was dropped as it was closed."""
        unsent = self._answers or self._unwritten or self._overflow or self.transport.is_closing()
        return not unsent and not self.transport.get_write_buffer_size()

    def end_pacing(self) -> bool:
        """The broker goes on with it; False: it did so already, or is to wait for all, and more was
        given meanwhile."""
        if not self._pacing:
            return False
        if self._waits_for_all and not self.is_all_sent:
            self.pace(all_sent=True)
            return False
        self._pacing = False
        self.transport.set_write_buffer_limits(self._high, self._low)
        return True

    def close(self) -> None:
        """Close when everything is sent, also what waits for the journal."""
        self.flush()
        if self._answers:
            self._closes_after_answers = True
            self.hold("closing")
        else:
            self.transport.close()

    def drained(self) -> "asyncio.Future[None]":
        """Drop no more, and return a future that is done when the kernel has taken everything."""
        self.flush()
        self._slow = "pause"
        self._pacing = False
        self._cancel_stall_timer()
        self.be_behind(False)
        self._drained = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():
                self.congested = True  # its end says that the kernel has taken everything
            else:
                self._say_drained()
            return self._drained
        while self._overflow and (buffer := self._overflow.get()) is not None:
            self._server.memory.held -= len(buffer)
            self.sent_bytes += len(buffer)
            self.transport.write(buffer)
        # From now on "congested" is "has anything left": more than the mark, but for asyncio's TLS
        # as much as the mark is too much.
        self.transport.set_write_buffer_limits(high=int(self._encrypted), low=0)
        if self.transport.get_write_buffer_size():
            self.congested = True  # nobody is told so who was paced, and so told already
        if not self.congested:
            self._say_drained()
        return self._drained

    def hold(self, reason: object) -> None:
        """Read no more until ``release`` with the same reason."""
        if not self._held_by and not self.transport.is_closing():
            self.transport.pause_reading()
        self._held_by.add(reason)
        self._held_lately = True

    def release(self, reason: object) -> None:
        """Go on reading, unless there is another reason not to."""
        if reason not in self._held_by:
            return
        self._held_by.discard(reason)
        if not self._held_by and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def waiting_bytes(self) -> int:
        """What is yet to be sent."""
        overflow = 0 if self._overflow is None else self._overflow.waiting_bytes
        unsent = self._unwritten_bytes + self._answers_bytes + overflow
        return unsent + self.transport.get_write_buffer_size()

    @property
    def on_hold(self) -> bool:
        """Whether it is our doing that nothing is read."""
        return bool(self._held_by)

    @property
    def hung_up_on_hold(self) -> bool:
        """Whether its peer has hung up, and it is our doing that nobody has read so."""
        return (
            self.on_hold
            and not self.transport.is_closing()
            and has_hung_up(self.transport.get_extra_info("socket"))
        )

    def perhaps_unread(self) -> bool:
        """Whether the peer may have said what we have not read, because we let it wait.

        Also once more after that is over: what was waiting is read only then.
        """
        lately, self._held_lately = self._held_lately, self.on_hold
        return lately

    # ---- slow receivers ----

    def _congest(self) -> None:
        self.congested = True
        if self._overflow is None:
            self._cancel_stall_timer()  # of one that is paced
            self._look_for_stall_in(self._server.stall_grace_s(self))
        self._server.congestion_changed(self)

    def _tighten_if_short(self) -> None:
        """While memory is short, it is congested sooner, until it has drained."""
        waits = self.transport.get_write_buffer_size() > _SHORT_BYTES
        if waits and self._server.memory.short:
            self._tightened = True
            self.transport.set_write_buffer_limits(_SHORT_BYTES, _SHORT_BYTES // 4)

    def _congest_if_high(self) -> None:
        if not self.congested and self.transport.get_write_buffer_size() > self._high:
            self._congest()

    def _hold_up(self, senders: Iterable[ConnectionId]) -> None:
        """Have these wait for us, if they are to."""
        for identity in senders:
            sender = self._server.connections.get(identity)
            if sender is not None and (self._slow == "pause" or sender is self):
                if sender not in self._holding:
                    limit = "max_buffered_bytes" if self._tightened else "outbox_high_bytes"
                    self._server.held[f"net.{limit}"] += 1
                self._holding.add(sender)
                sender.hold(self)

    def _too_slow(self, buffers: list[Buffer]) -> None:
        if self._overflow is None:
            if not self.transport.is_closing():
                self._server.gave_up(self, "its outbox is full (slow=disconnect)")
            return
        silent = not self._overflow.dropped.messages
        memory, before = self._server.memory, self._overflow.waiting_bytes
        self._overflow.put(buffers, short=memory.short)
        memory.held += self._overflow.waiting_bytes - before
        if silent and self._overflow.dropped.messages:
            _log.warning("connection %d is slow: messages to it are dropped", self.id)

    def _write_overflow(self, overflow: Overflow) -> None:
        while not self.congested and (buffer := overflow.get()) is not None:
            self._server.memory.held -= len(buffer)
            self.sent_bytes += len(buffer)
            self.transport.write(buffer)

    def _say_drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _release_all(self) -> None:
        holding, self._holding = self._holding, set()
        for publisher in holding:
            publisher.release(self)

    # ---- stalled receivers ----

    @property
    def slow(self) -> Policy:
        """What is done about it if it takes too little."""
        return self._slow

    def be_behind(self, is_behind: bool | None) -> None:
        """Note whether publishers wait for it because of what it has not acknowledged: they may for
        as long as if its socket took nothing. None: it has left."""
        loop = asyncio.get_running_loop()
        if self._behind_timer is not None:
            self._behind_timer.cancel()
            self._behind_timer = None
            if is_behind is None:
                self._server.left_stalling(self, loop.time() - self._behind_since)
        if is_behind:
            grace_s = self._server.stall_grace_s(self)
            self._behind_since = loop.time()
            self._behind_timer = loop.call_later(grace_s, self._stalled_behind, grace_s)

    def _stalled_behind(self, grace_s: float) -> None:
        self._behind_timer = None
        self._server.stalled_behind(self, grace_s)

    def _look_for_stall_in(self, grace_s: float) -> None:
        """From now on look whether it takes anything, once in the time it has for that."""
        loop = asyncio.get_running_loop()
        self._stalling_since = loop.time()
        # It may be given more meanwhile: what it has taken says more than what waits.
        taken = self.sent_bytes - self.transport.get_write_buffer_size()
        self._stall_timer = loop.call_later(grace_s, self._look_for_stall, grace_s, taken)

    def _look_for_stall(self, grace_s: float, before: int) -> None:
        """Disconnect it if it is still above the high mark, or took nothing since the last look."""
        self._stall_timer = None
        waiting = self.transport.get_write_buffer_size()
        if waiting > self._high or self.sent_bytes - waiting <= before:
            self._server.stalled(self, grace_s)
        else:
            self._look_for_stall_in(grace_s)

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
