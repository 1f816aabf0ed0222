"""The codec: any cuts give the same events, nothing raises, memory has a bound."""

from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from host_broker.protocols.fq.codec import (
    MAX_HOPS,
    Codec,
    spell_error,
    spell_greeting,
    spell_head,
    spell_login,
    spell_message,
    spell_origin,
    spell_run,
    spell_taken,
)
from host_broker.protocols.fq.events import (
    Bind,
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Event,
    Heartbeat,
    HeartbeatRequest,
    Login,
    LoginAccepted,
    MessageRun,
    Status,
    StatusRequest,
    Taken,
    TooLong,
    Unbind,
    UnbindAnswer,
)
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation
from tests.host_broker.protocols.fq.peer import ID, spell_event, taken_apart

_MOST = 200
shorts = st.integers(0, 0xFFFF)
longs = st.integers(0, 0xFFFFFFFF)
names = st.binary(max_size=127)
keys = st.binary(min_size=1, max_size=127)
texts = st.binary(max_size=300)

from_clients = st.one_of(
    st.just(Heartbeat()),
    st.just(StatusRequest()),
    shorts.map(HeartbeatRequest),
    st.builds(Bind, shorts, names, texts),
    st.builds(Unbind, longs, names),
)
from_broker = st.one_of(
    st.just(Heartbeat()),
    longs.map(BindAnswer),
    longs.map(UnbindAnswer),
    keys.map(LoginAccepted),
    st.lists(st.tuples(keys, longs), max_size=12).map(tuple).map(Status),
)
logins = st.builds(Login, names, st.binary(max_size=1023), st.binary(max_size=1024))
messages = st.lists(
    st.tuples(
        st.sampled_from([b"ex", b"", b"e" * 127]),
        st.sampled_from([b"r", b"", b"r" * 127]),
        st.binary(min_size=16, max_size=16),
        st.sampled_from([b"", b"alice", b"s" * 127]),
        st.sampled_from([b"", b"\x7f\0\0\1", b"\x7f\0\0\1" * MAX_HOPS]),
        st.binary(max_size=_MOST + 3),
    ),
    max_size=12,
)


def _read(codec: Codec, data: bytes, cuts: list[int]) -> list[Event]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    events: list[Event] = []
    for begin, end in pairwise(places):
        events += codec.receive_data(data[begin:end])
    return events


def _each(events: list[Event]) -> list[Any]:
    """Runs taken apart: where they end depends on the cuts."""
    found: list[Any] = []
    for event in events:
        if type(event) is MessageRun:
            assert len(event.ids) == len(event.payloads) > 0
            found += [
                (each.exchange, each.route, each.id, each.sender, each.hops, each.payload)
                for each in taken_apart(event)
            ]
        elif type(event) is Violation:
            found.append((event.rule, event.reason, event.fatal))
        else:
            found.append(event)
    return found


@given(logins, st.lists(from_clients, max_size=8), st.lists(longs))
def test_commands_come_as_they_were_said(login: Login, said: list[Any], cuts: list[int]) -> None:
    events = [CommandGreeting(), login, *said]
    data = b"".join(map(spell_event, events))
    assert _read(Codec("broker", _MOST), data, cuts) == events


@given(st.lists(from_broker, max_size=8), texts, st.lists(longs))
def test_answers_come_as_they_were_said(said: list[Any], text: bytes, cuts: list[int]) -> None:
    """R11, R19: an error is the last one."""
    error = spell_error(text.decode("latin-1"))
    data = b"".join(map(spell_event, said)) + error + b"\xff\xff"
    expected = [*said, ErrorText(error[4:])]
    assert _read(Codec("command", _MOST), data, cuts) == expected


@given(keys, messages, st.sampled_from(["client", "peer", "old", "plain"]), st.lists(longs))
@example(b"k", [(b"", b"", ID, b"", b"", b"x" * (_MOST + 1))], "client", [])
def test_messages_come_as_they_were_said(
    key: bytes, said: list[Any], whose: str, cuts: list[int]
) -> None:
    """R21, R22, R24 to R26, A2, A3, A5, A7: in all formats, also those that are too long."""
    node = b"" if whose in ("client", "old") else b"\x0a\0\0\1"
    greeting = DataGreeting(key, node, whose != "client")
    with_origin = whose in ("peer", "old")
    data, expected = spell_greeting(greeting), [greeting]
    for exchange, route, id, sender, hops, payload in said:
        origin = spell_origin(sender, hops) if with_origin else b""
        data += spell_run(spell_head(exchange, route), origin, [id], [payload])
        if len(payload) > _MOST:
            expected.append(TooLong(exchange, route, id, len(payload)))
        elif with_origin:
            expected.append((exchange, route, id, sender, hops, payload))
        else:
            expected.append((exchange, route, id, b"", b"", payload))
    codec = Codec("broker", _MOST, peer_format="plain" if whose == "plain" else "peer")
    assert _each(_read(codec, data, cuts)) == expected


@given(
    keys,
    st.binary(min_size=8, max_size=8),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8),
    st.lists(longs),
)
def test_what_is_taken_comes_as_it_was_said(
    key: bytes, taker: bytes, numbers: list[int], cuts: list[int]
) -> None:
    """Of a peer that acknowledges: nothing else comes from it."""
    greeting = DataGreeting(key, b"\x0a\0\0\1", True, taker, numbers[0])
    data = spell_greeting(greeting) + b"".join(map(spell_taken, numbers))
    assert _read(Codec("broker", _MOST), data, cuts) == [greeting, *map(Taken, numbers)]


_beginnings = st.sampled_from(
    [
        b"",
        spell_greeting(CommandGreeting()),
        spell_greeting(CommandGreeting()) + spell_login(b"u", b"q", b"p"),
        spell_greeting(DataGreeting(b"k")),
        spell_greeting(DataGreeting(b"k", b"\0\0\0\1", True)),
        spell_greeting(DataGreeting(b"k", b"\0\0\0\1", True, b"t" * 8)),
    ]
)
_garbage = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"\xaa\xaa\0\0", b"\xb1\x70", b"\x07\x1b", b"\xc7\xa7\0\0", b"\0" * 40]),
        st.just(spell_message(b"ex", b"r", ID, b"payload")),
    ),
    max_size=12,
).map(b"".join)


@given(_beginnings, _garbage, st.lists(longs), st.sampled_from(["broker", "command", "data"]))
def test_whatever_comes_is_read_the_same_however_it_is_cut(
    beginning: bytes, data: bytes, cuts: list[int], role: Any
) -> None:
    """A20: and nothing raises; a violation is the last event, of which only one is told."""
    whole = Codec(role, _MOST).receive_data(beginning + data)
    assert _each(_read(Codec(role, _MOST), beginning + data, cuts)) == _each(whole)
    violations = [each for each in whole if type(each) is Violation]
    assert violations == whole[-1:] or not violations
    assert all(each.fatal for each in violations)


def test_long_payloads_are_copied_into_the_budget() -> None:
    """What is unfinished takes its memory from what all connections share, and gives it back."""
    budget = Budget(100_000)
    codec = Codec("broker", 1 << 20, budget)
    codec.receive_data(spell_greeting(DataGreeting(b"k")))
    message = spell_message(b"ex", b"r", ID, b"x" * 90_000)
    assert codec.receive_data(message[:50_000]) == []
    assert budget.left <= 50_000
    (run,) = codec.receive_data(message[50_000:])
    assert type(run) is MessageRun
    assert budget.left == 100_000
    longer = spell_message(b"ex", b"r", ID, b"x" * 200_000)
    (violation,) = codec.receive_data(longer[:150_000])
    assert isinstance(violation, Violation)
    assert violation.rule == "bus.max_held_bytes"
    assert budget.left == 100_000


def test_what_is_too_long_is_not_kept() -> None:
    """A7: 4 GiB are announced, and 1 MiB of it comes."""
    budget = Budget(100_000)
    codec = Codec("broker", 1 << 20, budget)
    codec.receive_data(spell_greeting(DataGreeting(b"k")))
    head = spell_head(b"ex", b"r") + ID + b"\xff" * 4
    assert codec.receive_data(head) == [TooLong(b"ex", b"r", ID, 0xFFFFFFFF)]
    for _ in range(16):
        assert codec.receive_data(bytes(65_536)) == []
    assert budget.left == 100_000


def test_lengths_are_looked_at_before_anything_is_waited_for() -> None:
    """R7, R24, R25, A9: one byte of a length that is too long is enough."""
    for beginning, said, rule in (
        (spell_greeting(CommandGreeting()), b"\xaa\xaa\0\0\0\x80", "R7"),
        (spell_greeting(CommandGreeting()), b"\xaa\xaa\0\0\0\0\4\0", "R7"),
        (spell_greeting(DataGreeting(b"k")), b"\x80", "R25"),
        (spell_greeting(DataGreeting(b"k")), b"\0\x80", "R25"),
        (b"\xcc\x50\xfa\xce", b"\0\x80", "R25"),
        (b"\xcc\x50\xfa\xce", b"\0\0", "R4"),
        (spell_greeting(DataGreeting(b"k", peer=True)), b"\0\0" + ID + b"\x80", "R25"),
        (spell_greeting(DataGreeting(b"k", peer=True)), b"\0\0" + ID + b"\0\x21", "R24"),
    ):
        codec = Codec("broker", _MOST)
        codec.receive_data(beginning)
        (violation,) = codec.receive_data(said)
        assert isinstance(violation, Violation), said
        assert violation.rule == rule
        assert codec.receive_data(b"more") == []
