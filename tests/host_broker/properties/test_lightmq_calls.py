"""Whatever happens in between, every request ends once, in time, and with its own response."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.lightmq.events import Ping, Send
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer, board

_TIMEOUT_S, _ANSWER_S, _MOST = 5.0, 2.0, 3
_NAMES = ["a", "b"]
_STEP = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(_NAMES)),
    st.tuples(st.just("down"), st.sampled_from(_NAMES)),
    st.tuples(st.just("answer"), st.sampled_from(_NAMES), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("call"), st.sampled_from(_NAMES)),
    st.tuples(st.just("send"), st.sampled_from(_NAMES)),
    st.tuples(st.just("reply"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 4.0])),
    st.tuples(st.just("leave"), st.sampled_from(_NAMES)),
    st.tuples(st.just("take over"), st.sampled_from(_NAMES)),
)


class _World:
    """Two boards, who may come and go; an FMQP program that asks, answers, and remembers."""

    def __init__(self) -> None:
        self.desk = Desk(
            lightmq={
                "request_timeout_s": _TIMEOUT_S,
                "answer_timeout_s": _ANSWER_S,
                "max_pending": _MOST,
                "ping_interval_s": 0,
                "duplicate_client": "takeover",
            }
        )
        self.program = self.desk.open()
        for topic in ("lightmq/*/reply/*", "lightmq/*/done/*", "lightmq/*/up/*"):
            self.desk.sub(self.program, topic)
        self.boards = {name: board(self.desk, name) for name in _NAMES}
        self.sends: dict[str, list[Send]] = {name: [] for name in _NAMES}  # not answered yet
        self.asked: dict[str, tuple[str, float]] = {}  # by tag: the board, when
        self.replied: dict[str, bytes] = {}  # by tag
        self.done: dict[str, bytes] = {}  # by tag
        self.questions: list[tuple[str, str]] = []  # what boards sent: their name, a number
        self.waiting: dict[tuple[Peer, int], float] = {}  # SENDs of boards: since when
        self.callers: dict[Peer, float] = {}
        self.count = 0

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("ask", name):
                self.count += 1
                tag = f"t{self.count}"
                self.asked[tag] = name, self.desk.now
                self.desk.pub(self.program, f"lightmq/{name}/request/{tag}", tag.encode())
            case ("down", name):
                self.desk.pub(self.program, f"lightmq/{name}/down", b"down")
            case ("answer", name, which, empty):
                sends = self.sends[name]
                if sends:
                    send = sends.pop(which % len(sends))
                    data = b"" if empty else b"re " + send.data
                    peer = self.boards[name]
                    self.desk.send(peer.connection, peer.codec.sendresp(send.id, data))
            case ("call", name):
                caller = Peer(self.desk)
                self.count += 1
                if caller.connect(f"caller-{self.count}>{name}").accepted:
                    self.callers[caller] = self.desk.now
                    self.desk.send(caller.connection, caller.codec.send(7, b"call"))
            case ("send", name):
                self.count += 1
                peer = self.boards[name]
                self.waiting[peer, self.count] = self.desk.now
                self.desk.send(peer.connection, peer.codec.send(self.count, b"question"))
            case ("reply", which):
                if self.questions:
                    name, number = self.questions.pop(which % len(self.questions))
                    self.desk.pub(self.program, f"lightmq/{name}/answer/{number}", b"answer")
            case ("wait", seconds):
                self.desk.advance(seconds)
            case ("leave", name):
                self._leave(name)
                self.boards[name] = board(self.desk, name)
            case ("take over", name):
                newcomer = board(self.desk, name)
                self._leave(name)
                self.boards[name] = newcomer
        self.look()

    def look(self) -> None:
        """Take what everybody was sent; nothing may be late or come twice."""
        for name, peer in self.boards.items():
            for event in peer.heard():
                assert not isinstance(event, Ping)
                if isinstance(event, Send):
                    self.sends[name].append(event)
                else:
                    assert event.data in (b"", b"answer")
                    del self.waiting[peer, event.id]  # once
        for _, topic, body in self.desk.messages(self.program):
            _, name, end, tag = topic.split("/")
            if end == "up":
                self.questions.append((name, tag))
            elif tag in self.asked:
                assert self.asked[tag][0] == name
                if end == "reply":
                    assert body == b"re " + tag.encode()
                    assert tag not in self.done
                    assert self.replied.setdefault(tag, body) is body
                else:
                    assert self.done.setdefault(tag, body) is body
                    assert body in (b"answered", b"unanswered", b"gone")
                    assert body == b"answered" or tag not in self.replied
        for caller in list(self.callers):
            heard = caller.heard()
            if heard or caller.closed:
                assert [event.id for event in heard] in ([7], [])
                assert not heard or heard[0].data in (b"", b"re call")
                assert bool(heard) != caller.closed
                del self.callers[caller]
        now = self.desk.now
        late = [t for t, (_, at) in self.asked.items() if now > at + _TIMEOUT_S + 1e-6]
        assert [tag for tag in late if tag not in self.done] == []
        assert [each for each, at in self.callers.items() if now > at + _TIMEOUT_S + 1e-6] == []
        assert [each for each, at in self.waiting.items() if now > at + _ANSWER_S + 1e-6] == []

    def _leave(self, name: str) -> None:
        gone = self.boards[name]
        self.desk.close(gone.connection)
        self.sends[name].clear()
        self.waiting = {key: at for key, at in self.waiting.items() if key[0] is not gone}


@settings(max_examples=300, deadline=None)
@given(st.lists(_STEP, max_size=40))
def test_every_request_ends_once_and_in_time(steps: list[tuple[Any, ...]]) -> None:
    """R14, R17, R18; request_timeout_s, answer_timeout_s, max_pending."""
    world = _World()
    for step in steps:
        world.do(step)
    world.desk.advance(max(_TIMEOUT_S, _ANSWER_S))
    world.look()
    assert set(world.done) == set(world.asked)
    assert world.waiting == {}
    assert world.callers == {}
    world.desk.broker.tick(1e9)
    assert not world.desk.done().sends
