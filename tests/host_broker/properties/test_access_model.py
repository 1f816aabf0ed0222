"""Random rules and histories: the broker does what a model does that looks at each rule each time.

The model shares nothing with the broker: patterns are matched level by level, subscriptions are a
list, and who gets what is worked out for each publication anew.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from host_broker.access.access import Access, Peer
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.bus.publication import pack
from host_broker.protocols.fmqp.spelling import encode_subscription
from host_broker.protocols.lightmq.paths import PATHS
from tests.host_broker.desk import Desk, Message
from tests.host_broker.lightmq_peer import Peer as Board

_TOKEN = "a long and random token"
_NAMES = ("alice", "bob", "board")
_BOARD = 2  # a LightMQ client; the others speak FMQP
_ROLES: dict[str, tuple[str, ...]] = {
    "alice": ("role", "users", "everybody"),
    "bob": ("users", "everybody"),
    "board": ("users", "everybody"),
}
_USERS = Users.read({"users": {"board": {"token": token_hash(_TOKEN)}, "alice": {}, "bob": {}}})

_TOPIC = st.sampled_from(["a", "b", "a/b", "a/alice", "a/*", "*"]) | st.sampled_from(
    [
        *("*/*/*", "lightmq/board/up", "lightmq/*/up", "lightmq/board/down"),
        *("lightmq/board/status", "lightmq/board/request/1"),
    ]
)
_PATTERN = st.sampled_from(
    [
        *("a", "b", "a/*", "*", "a/**", "**", "%c/**", "a/%c", "board"),
        *("lightmq/**", "lightmq/%c/*", "lightmq/board/up"),
    ]
)
_ACTION = st.sampled_from(["publish", "publish", "subscribe", "call"])
_SUBJECT = st.sampled_from(["principals.alice", "principals.bob", "principals.board"]) | (
    st.sampled_from(["roles.role", "roles.users", "roles.everybody"])
)
Rule = tuple[str, str, bool, str]
# Half of the time everything is allowed that no rule denies: else hardly anything ever happens.
_OPEN: list[Rule] = [
    ("roles.everybody", action, False, "**") for action in ("publish", "subscribe", "call")
]
_RULES = st.builds(
    lambda rules, is_open: [*(_OPEN if is_open else []), *rules],
    st.lists(st.tuples(_SUBJECT, _ACTION, st.booleans(), _PATTERN), max_size=8),
    st.booleans(),
)
_CLIENT = st.integers(0, 1)
_BODY = st.sampled_from([b"1", b"2"])
_STEP = st.one_of(
    st.tuples(st.just("subscribe"), _CLIENT, _TOPIC),
    st.tuples(st.just("publish"), _CLIENT, st.lists(st.tuples(_TOPIC, _BODY), max_size=6)),
    st.tuples(st.just("retain"), _CLIENT, _TOPIC, st.just(b"") | _BODY),
    st.tuples(st.just("will"), _CLIENT, _TOPIC, _BODY),
    st.tuples(st.just("leave"), _CLIENT),
    st.tuples(st.just("board"), _BODY),
    st.tuples(st.just("rules"), _RULES),
)


def _document(rules: list[Rule]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "roles": {"everybody": {"connect": ["**"]}, "users": {}, "role": {}},
        "principals": {"alice": {"roles": ["role"]}, "bob": {}, "board": {}},
    }
    for subject, action, denies, pattern in rules:
        kind, name = subject.split(".")
        table = document[kind][name]
        if denies:
            table = table.setdefault("deny", {})
        table.setdefault(action, []).append(pattern)
    return document


def _is_under(pattern: str, topic: str, own: str, *, anything: bool) -> bool:
    """Whether all that a topic can mean is under a pattern, or (``anything``) any of it."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    if len(wanted) != len(levels):
        return False
    for one, level in zip(wanted, levels, strict=True):
        one = own if one == "%c" else one
        if one not in ("*", level) and not (anything and level == "*"):
            return False
    return True


def _equivalent(one: str, other: str) -> bool:
    ones, others = one.split("/"), other.split("/")
    return len(ones) == len(others) and all(
        each == level or "*" in (each, level) for each, level in zip(ones, others, strict=True)
    )


@dataclass
class Model:
    rules: list[Rule]
    subscriptions: dict[str, list[str]] = field(
        default_factory=lambda: {name: [] for name in _NAMES}
    )
    retained: dict[str, bytes] = field(default_factory=dict)
    wills: dict[str, list[tuple[str, bytes]]] = field(
        default_factory=lambda: {name: [] for name in _NAMES}
    )
    board_came: bool = False
    got: dict[str, Counter[Message]] = field(
        default_factory=lambda: {name: Counter() for name in _NAMES}
    )

    def by_rules(self, who: str, action: str, path: str) -> bool:
        subjects = {f"principals.{who}", *(f"roles.{role}" for role in _ROLES[who])}
        mine = [rule for rule in self.rules if rule[0] in subjects and rule[1] == action]
        if any(rule[2] and _is_under(rule[3], path, who, anything=True) for rule in mine):
            return False
        return any(not rule[2] and _is_under(rule[3], path, who, anything=False) for rule in mine)

    def may_publish(self, who: str, topic: str) -> bool:
        levels = topic.split("/")
        spoken = ("up", "status", "reply", "up/*", "reply/*", "done/*")
        if any(_equivalent(f"lightmq/*/{end}", topic) for end in spoken):
            return False
        if _equivalent("lightmq/*/request/*", topic):
            if not self.by_rules(who, "call", levels[1]):
                return False
            if levels[0] == "lightmq" and levels[2] == "request":
                return True
        return self.by_rules(who, "publish", topic)

    def subscribe(self, who: str, topic: str) -> None:
        if self.by_rules(who, "subscribe", topic):
            if topic not in self.subscriptions[who]:
                self.subscriptions[who].append(topic)
            for kept, body in self.retained.items():
                if _equivalent(kept, topic):
                    self.got[who][4, kept, body] += 1

    def publish(self, who: str, topic: str, body: bytes, flags: int = 0) -> None:
        if self.may_publish(who, topic):
            self.deliver(topic, body, flags)

    def deliver(self, topic: str, body: bytes, flags: int) -> None:
        if flags & 4:
            self.retained.pop(topic, None)
            if body:
                self.retained[topic] = body
        if body:
            for who, topics in self.subscriptions.items():
                if any(_equivalent(each, topic) for each in topics):
                    self.got[who][flags, topic, body] += 1

    def leave(self, who: str) -> None:
        self.subscriptions[who] = []
        wills, self.wills[who] = self.wills[who], []
        for topic, body in wills:
            self.publish(who, topic, body, 8)

    def board_says(self, body: bytes) -> bool:
        """Whether the board is still there; it is closed if it may not speak."""
        if not self.board_came:
            self.board_came = True
            for end in ("down", "request/*"):
                if self.is_denied("subscribe", f"lightmq/board/{end}"):
                    return False
        if self.is_denied("publish", "lightmq/board/up"):
            return False
        self.deliver("lightmq/board/up", body, 0)
        return True

    def is_denied(self, action: str, path: str) -> bool:
        """Whether a rule denies the board what is its own."""
        subjects = {"principals.board", *(f"roles.{role}" for role in _ROLES["board"])}
        return any(
            rule[0] in subjects
            and rule[1:3] == (action, True)
            and _is_under(rule[3], path, "board", anything=True)
            for rule in self.rules
        )

    def change(self, rules: list[Rule]) -> None:
        self.rules = rules
        for who, topics in self.subscriptions.items():
            topics[:] = [each for each in topics if self.by_rules(who, "subscribe", each)]


class Real:
    """The broker, asked the same."""

    def __init__(self, rules: list[Rule]) -> None:
        self.access = Access(_USERS, Rules.read(_document(rules)), [PATHS])
        self.desk = Desk(access=self.access, bus={"wildcard_matches_service": False})
        self.clients = [self._open(name) for name in _NAMES[:_BOARD]]
        self.board: Board | None = None

    def _open(self, name: str) -> int:
        return self.desk.open(peer=Peer("127.0.0.1", listener=name))

    def say(self, client: int, data: bytes) -> None:
        self.desk.send(self.clients[client], data)

    def leave(self, client: int) -> None:
        self.desk.close(self.clients[client])
        self.clients[client] = self._open(_NAMES[client])

    def board_says(self, body: bytes) -> None:
        if self.board is None:
            self.board = Board(self.desk)
            assert self.board.connect(f"board:{_TOKEN}").accepted
        self.board.say(self.board.codec.send(1, body))

    def change(self, rules: list[Rule]) -> None:
        self.access.change(_USERS, Rules.read(_document(rules)))
        self.desk.done(self.desk.broker.access_changed(self.desk.now))

    def got(self) -> dict[str, Counter[Message]]:
        return {
            name: Counter(self.desk.messages(connection))
            for name, connection in zip(_NAMES, self.clients, strict=False)
        }


def _without_boards_presence(got: Counter[Message]) -> Counter[Message]:
    return Counter({each: n for each, n in got.items() if not each[1].endswith("/status")})


_TRY: list[Any] = [("subscribe", 1, "*/*/*"), ("board", b"1"), ("publish", 0, [("a", b"1")] * 6)]


@settings(max_examples=150)
@given(_RULES, st.lists(_STEP, min_size=3, max_size=20))
@example(_OPEN, _TRY)
@example([*_OPEN, ("principals.board", "publish", True, "lightmq/%c/*")], [*_TRY, ("board", b"2")])
@example(_OPEN, [("subscribe", 1, "a"), ("rules", []), ("publish", 0, [("a", b"1")])])
@example(
    [*_OPEN, ("principals.alice", "publish", True, "a")],
    [("subscribe", 1, "*"), ("publish", 0, [("*", b"1"), ("b", b"1")])],
)
@example(
    [*_OPEN[1:]],
    [("subscribe", 1, "lightmq/*/*/*"), ("publish", 0, [("lightmq/board/request/1", b"1")])],
)
@example(
    [_OPEN[1], ("roles.users", "publish", False, "%c/**")],
    [("subscribe", 1, "*/b"), ("publish", 0, [("a/b", b"1"), ("alice/b", b"1")])],
)
@example(
    _OPEN, [("publish", 0, [("a", b"1")]), ("subscribe", 1, "a"), ("publish", 0, [("a", b"2")])]
)
def test_the_broker_does_what_the_rules_say(rules: list[Rule], steps: list[Any]) -> None:
    model, real = Model(rules), Real(rules)
    there = True
    for step in steps:
        match step:
            case ("subscribe", client, topic):
                model.subscribe(_NAMES[client], topic)
                real.say(client, encode_subscription(topic, debug=True))
            case ("publish", client, publications):
                for topic, body in publications:
                    model.publish(_NAMES[client], topic, body)
                packets = [pack(0, topic.encode(), body) for topic, body in publications]
                real.say(client, b"".join(packets))
            case ("retain", client, topic, body):
                model.publish(_NAMES[client], topic, body, 4)
                real.say(client, pack(4, topic.encode(), body))
            case ("will", client, topic, body):
                model.wills[_NAMES[client]].append((topic, body))
                real.say(client, pack(8, topic.encode(), body))
            case ("leave", client):
                model.leave(_NAMES[client])
                real.leave(client)
            case ("board", body) if there:
                real.board_says(body)
                there = model.board_says(body)
                assert real.board is not None
                assert real.board.closed != there
            case ("rules", other):
                model.change(other)
                real.change(other)
        found = real.got()
        for name in _NAMES[:_BOARD]:
            assert _without_boards_presence(found[name]) == _without_boards_presence(
                model.got[name]
            ), (step, name)
            model.got[name].clear()
    # Nothing that may not be there is in the journal.
    allowed = {topic for *_, found in real.desk.journal() for _, topic, _ in found}
    assert "lightmq/*/up" not in allowed
    assert "*/*/*" not in allowed
