"""MicroMsg2's fragments: joined again, with what may come between, within the memory there is."""

from hypothesis import given
from hypothesis import strategies as st

from host_broker.protocols.micromsg2.assembly import Assembler
from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import CommandFrame, Handshake, MessageFrame
from host_broker.protocols.micromsg2.negotiation import Acks
from host_broker.protocols.micromsg2.refusal import Refusal
from host_broker.protocols.micromsg2.windows import ReceiveWindow
from host_broker.wire.budget import Budget


def _frame(number: int, payload: bytes, more: bool = False, to: bytes = b"q") -> MessageFrame:
    return MessageFrame(number, to, b"k:N%d" % number, payload, more)


def _refusal(found: object) -> str:
    assert isinstance(found, Refusal)
    return found.rule


_MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([b"q", b"topic/a"]), st.lists(st.binary(max_size=5), min_size=1, max_size=4)
    ),
    max_size=5,
)


@given(_MESSAGES, st.lists(st.integers(0, 3), max_size=20), st.integers(1, 64))
def test_fragments_among_others(
    messages: list[tuple[bytes, list[bytes]]], others: list[int], cut: int
) -> None:
    """R19, A17: commands and extension frames between them are taken as they come, frames that are
    sent again are left out, and every fragment has its own number and its own ack."""
    stream = spell_handshake(Handshake(1, 0, ""))
    number = 0
    expected = []
    for destination, parts in messages:
        first = number + 1
        for place, part in enumerate(parts, 1):
            number += 1
            frame = spell_message(
                number, destination, b"k:N%d" % number, part, continued=place < len(parts)
            )
            kind = others[number % len(others)] if others else 0
            stream += frame * 2 if kind == 1 else frame
            stream += spell_command_frame("ping") if kind == 2 else b""
            stream += spell_extension(1, b"x") if kind == 3 else b""
        payload = b"".join(parts)
        # Of a single frame the properties are its own, of many the first's.
        expected.append(MessageFrame(number, destination, b"k:N%d" % first, payload))
    codec = Codec("client")
    budget = Budget(1000)
    assembler = Assembler(100, budget)
    window = ReceiveWindow(Acks(1, 3))
    found = []
    commands = 0
    for position in range(0, len(stream), cut):
        for event in codec.receive_data(stream[position : position + cut]):
            if isinstance(event, CommandFrame):
                commands += 1
            if isinstance(event, MessageFrame) and window.receive(event.sequence, 0.0):
                whole = assembler.add(event)
                assert not isinstance(whole, Refusal)
                found += [whole] if whole else []
    assert found == expected
    assert commands == sum(
        bool(others) and others[n % len(others)] == 2 for n in range(1, number + 1)
    )
    assert window.take_early() == (number or None)
    assert budget.left == 1000


def test_no_other_message_comes_between() -> None:
    """A17: one of the same destination cannot be told from a fragment."""
    assembler = Assembler(100)
    assert assembler.add(_frame(1, b"a", more=True)) is None
    assert _refusal(assembler.add(_frame(2, b"b", to=b"other"))) == "R19"
    assert assembler.add(_frame(3, b"c")) == _frame(3, b"c")


def test_a_message_is_as_long_as_a_body_may_be() -> None:
    """A17: however many fragments it has."""
    assembler = Assembler(10)
    assert assembler.add(_frame(1, b"12345", more=True)) is None
    whole = assembler.add(_frame(2, b"67890"))
    assert isinstance(whole, MessageFrame)
    assert (whole.payload, whole.sequence, whole.properties) == (b"1234567890", 2, b"k:N1")
    assert assembler.add(_frame(1, b"12345", more=True)) is None
    assert _refusal(assembler.add(_frame(2, b"678901", more=True))) == "bus.max_body"


def test_fragments_share_the_brokers_memory() -> None:
    budget = Budget(10)
    one, other = Assembler(100, budget), Assembler(100, budget)
    assert one.add(_frame(1, b"123456", more=True)) is None
    assert _refusal(other.add(_frame(1, b"12345", more=True))) == "bus.max_held_bytes"
    assert other.add(_frame(2, b"1234", more=True)) is None
    assert budget.left == 0
    one.close()
    other.close()
    one.close()
    assert budget.left == 10


def test_empty_fragments_cost_nothing() -> None:
    """However many of them come."""
    assembler = Assembler(10, Budget(0))
    for number in range(1000):
        assert assembler.add(_frame(number, b"", more=True)) is None
    whole = assembler.add(_frame(1000, b""))
    assert isinstance(whole, MessageFrame)
    assert whole.payload == b""
