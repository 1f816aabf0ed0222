"""Whatever comes by either connection, nobody else is harmed, and no session fails."""

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.fq.codec import (
    spell_bind,
    spell_greeting,
    spell_heartbeat_request,
    spell_login,
    spell_message,
    spell_status_request,
    spell_unbind,
)
from host_broker.protocols.fq.events import CommandGreeting, DataGreeting
from tests.host_broker.protocols.fq.peer import ID, Peer, fq_desk

_commands = st.one_of(
    st.binary(max_size=12),
    st.builds(
        spell_bind,
        st.integers(0, 0xFFFF),
        st.binary(max_size=6),
        st.sampled_from([b"prefix:", b'exact:"a" true()', b'prefix:"\\x00" (true()', b"x"]),
    ),
    st.builds(spell_unbind, st.integers(0, 6), st.binary(max_size=6)),
    st.just(spell_status_request() + b"\0\0"),
    st.integers(0, 0xFFFF).map(spell_heartbeat_request),
)
_messages = st.one_of(
    st.binary(max_size=12),
    st.builds(
        spell_message,
        st.sampled_from([b"ex", b"", b"$", b"\xff"]),
        st.binary(max_size=8),
        st.just(ID),
        st.binary(max_size=30),
    ),
)
_logins = st.one_of(
    st.binary(max_size=30),
    st.builds(
        spell_login,
        st.binary(max_size=5),
        st.sampled_from([b"", b"w\0mem:public", b"x\0mem:block,backlog=1", b"y\0disk", b"z\0:,,"]),
        st.binary(max_size=5),
    ),
)


_whose = st.sampled_from(
    [
        (b"", False, b"", 0),
        (b"\1\2\3\4", True, b"", 0),
        (b"\1\2\3\4", True, b"a taker.", 1),
    ]
)


@settings(deadline=None)
@given(_logins, st.lists(_commands, max_size=8), st.lists(_messages, max_size=8), _whose)
def test_others_are_served(
    login: bytes,
    commands: list[bytes],
    messages: list[bytes],
    whose: tuple[bytes, bool, bytes, int],
) -> None:
    desk = fq_desk(journalled=True)
    publisher, consumer = Peer(desk, b"p"), Peer(desk, b"c")
    consumer.bind(b"mine", b'exact:"only"')
    hostile = desk.open("fq")
    desk.send(hostile, spell_greeting(CommandGreeting()) + login)
    answer = desk.got(hostile)
    data = desk.open("fq")
    key = answer[4:131] if answer.startswith(b"\xaa\0") else b"no key"
    desk.send(data, spell_greeting(DataGreeting(key, *whose)))
    for index in range(max(len(commands), len(messages))):
        if index < len(commands):
            desk.send(hostile, commands[index])
        if index < len(messages) and (data, "queue") not in desk.held:
            desk.send(data, messages[index])
        desk.advance(0.1)
    publisher.publish(b"mine", b"only", b"1", b"2")
    assert consumer.payloads() == [b"1", b"2"]
    desk.close(hostile)
    desk.close(data)
    assert set(desk.broker.queues) == {b"fq/p", b"fq/c"}
