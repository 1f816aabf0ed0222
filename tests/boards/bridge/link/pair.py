"""Both ends of the reliable link on one simulated line: the host's pure side and the board's code.

``Pair.run`` moves simulated time. Whatever happens, each byte that an end delivers is checked
against what the other end was given in the same session.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import umotemq.reliable
from benchmarks.link.line import Direction, Faults
from boards.bridge.reliable_link import Asked, Ended, HostLink
from tests.boards.bridge.link.board_end import BoardEnd
from umotemq.reliable import Reliable

_PERIOD = 1 << 30


@dataclass(slots=True)
class Stream:
    """One direction of one session: what was given to the sender, how much was delivered."""

    given: bytearray = field(default_factory=bytearray)
    delivered: int = 0

    def check(self, data: bytes) -> None:
        """Fail unless ``data`` is what comes next."""
        wanted = self.given[self.delivered : self.delivered + len(data)]
        assert data == bytes(wanted), f"wrong bytes at {self.delivered}"
        self.delivered += len(data)


@dataclass(slots=True)
class Session:
    """What happened in one session, and when."""

    number: int
    up: Stream = field(default_factory=Stream)  # board to host
    down: Stream = field(default_factory=Stream)
    host_ended: Ended | None = None
    host_ended_at: float = 0.0
    board_error: str | None = None  # "" for an orderly end
    board_ended_at: float = 0.0


class Pair:
    """``load``: how many bytes either program wants to send in one session.

    ``holds``: the line is the board's console, which holds so many bytes unread.
    """

    def __init__(
        self,
        seed: int,
        baud: int = 115200,
        faults: Faults | None = None,
        *,
        load: int = 20_000,
        patience_ms: int = 5000,
        clock_ms: int = 0,
        step_ms: int = 3,
        holds: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        random.seed(seed)  # the board chooses its session with it
        faults = faults or Faults()
        self.to_host = Direction(self.rng, baud, faults)
        self.to_board = Direction(self.rng, baud, faults)
        self.host = HostLink()
        self.sessions: dict[int, Session] = {}
        self.log: list[Session] = []
        self.load = load
        self.now_ms = 0
        self.host_reads = self.board_reads = self.host_answers = True
        self.board_stops_at = self.host_stops_at = 1 << 60  # bytes, then its program closes
        self._patience_ms = patience_ms
        self._clock_ms = clock_ms
        self._step_ms = step_ms
        self._holds = holds
        self._wire = b""
        self._asked_at: int | None = None
        umotemq.reliable.ticks_ms = self._ticks_ms
        self.power_on()

    def restart_bridge(self) -> None:
        """The bridge was killed, and runs again; what was on the line is lost."""
        self.host = HostLink()
        self.to_host.receiver_reset()
        self.to_board.sender_reset()
        self._wire = b""
        self._asked_at = None
        self.last.host_ended = Ended("killed", False, b"")

    def power_on(self) -> None:
        """The board starts anew, as after a reset: nothing of its old life is left."""
        self.to_host.sender_reset()
        self.to_board.receiver_reset()
        self.board = Reliable(BoardEnd(self.to_host, self.to_board, self._holds), self._patience_ms)
        self.stream: Reliable | None = None
        self._open_at = self.now_ms

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    @property
    def last(self) -> Session:
        return self.log[-1]

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass until ``until()``, for ``limit_s`` at most; return whether it came."""
        end = self.now + limit_s
        while not until():
            if self.now >= end:
                return False
            self.now_ms += self.rng.randint(1, self._step_ms)
            self.to_host.advance(self.now)
            self.to_board.advance(self.now)
            self._host_turn()
            self._board_turn()
        return True

    def run_for(self, seconds: float) -> None:
        self.run(lambda: False, seconds)

    @property
    def _board_session(self) -> int:
        number = self.board._run.gi_frame.f_locals["session"]
        assert isinstance(number, int)
        return number

    # ---- the host's edge and program ----

    def _host_turn(self) -> None:
        if not self.host_answers:
            return
        data = self.to_host.read(4096)
        for event in self.host.receive_data(data, self.now) + self.host.tick(self.now):
            if isinstance(event, Asked):
                self._asked_at = self.now_ms
            elif isinstance(event, Ended):
                self._host_ended(event)
        if self._asked_at is not None and self.now_ms >= self._asked_at + 10:
            self._asked_at = None
            if self.host.session is not None:
                self.host.accept(self.now)
                self.log.append(Session(self.host.session))
                self.sessions[self.host.session] = self.last
        if self.host.is_open:
            self._host_program()
        while True:
            self._wire = self._wire or self.host.data_to_send(self.now)
            taken = self.to_board.write(self._wire)
            self._wire = self._wire[taken:]
            if self._wire or not taken:
                return

    def _host_ended(self, event: Ended) -> None:
        self._asked_at = None
        if self.log and self.log[-1].host_ended is None:
            self.last.up.check(event.rest)
            self.last.host_ended, self.last.host_ended_at = event, self.now
            if event.complete and event.reason == "closed by the board":
                assert self.last.up.delivered == len(self.last.up.given)

    def _host_program(self) -> None:
        session = self.last
        if self.host_reads:
            session.up.check(self.host.take(self.rng.randint(1, 2000), self.now))
        given = session.down.given
        if len(given) >= self.host_stops_at:
            self.host.finish(self.now)
        elif len(given) < self.load and self.host.sendable:
            data = self.rng.randbytes(self.rng.choice((1, 30, 30, 200, 1000)))
            if self.rng.random() < 0.1:
                data = bytes(len(data))
            given += data[: self.host.send(data, self.now)]

    # ---- the board's program ----

    def _board_turn(self) -> None:
        if self.stream is None:
            if self.now_ms >= self._open_at:
                self.stream = self.board.open()
            return
        session = self.sessions.get(self._board_session)
        try:
            if self.board_reads:
                buffer = bytearray(self.rng.choice((1, 64, 256, 1024)))
                while count := self.stream.readinto(buffer):
                    assert session is not None
                    session.down.check(bytes(buffer[:count]))
                if count == 0:
                    self._board_ended("")
                    return
            self._board_program(session)
        except OSError as error:
            self._board_ended(str(error))

    def _board_program(self, session: Session | None) -> None:
        assert self.stream is not None
        if session is None:
            assert self.stream.write(b"") is None
            return
        given = session.up.given
        if len(given) >= self.board_stops_at:
            self.stream.close()
            self._board_ended("closed here")
        elif len(given) < self.load:
            data = self.rng.randbytes(self.rng.choice((1, 30, 30, 200, 1000)))
            given += data[: self.stream.write(memoryview(data)) or 0]
        else:
            assert self.stream.write(b"") is None

    def _board_ended(self, error: str) -> None:
        self.stream = None
        session = self.sessions.get(self._board_session)
        if session is not None:
            session.board_error, session.board_ended_at = error, self.now
            if not error:
                assert session.down.delivered == len(session.down.given)
        self._open_at = self.now_ms + 500

    def _ticks_ms(self) -> int:
        return (self._clock_ms + self.now_ms) % _PERIOD

    def done(self) -> bool:
        """Return whether all that either program wants to send in this session has arrived."""
        if not self.log:
            return False
        streams = (self.last.up, self.last.down)
        return all(len(s.given) >= self.load and s.delivered == len(s.given) for s in streams)
