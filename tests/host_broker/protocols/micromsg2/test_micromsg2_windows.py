"""MicroMsg2's acks: a model of two ends and the stream between them, and each rule by itself."""

import time
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_extension,
    spell_handshake,
)
from host_broker.protocols.micromsg2.events import ExtensionFrame, Handshake
from host_broker.protocols.micromsg2.negotiation import Acks
from host_broker.protocols.micromsg2.outgoing import Outgoing, OutgoingMessage
from host_broker.protocols.micromsg2.refusal import Refusal
from host_broker.protocols.micromsg2.windows import (
    LAST_NUMBER,
    UNLIMITED,
    ReceiveWindow,
    SendWindow,
    read_ack,
    spell_ack,
)
from host_broker.wire.budget import Budget

_DELAY_S = 0.5


class TwoEnds(RuleBasedStateMachine):
    """A sender, a receiver, and a stream each way that is as slow as it likes.

    Nothing is lost, nothing is delivered twice, the order holds, and never is more out than agreed;
    whatever both do, in the end all is acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.there: deque[tuple[int, int]] = deque()  # number, message
        self.back: deque[int] = deque()
        self.numbers: dict[int, int] = {}  # by message
        self.got: list[int] = []
        self.done: list[int] = []
        self.oldest_without_ack: float | None = None  # when it came

    @initialize(
        window=st.integers(1, 9),
        last=st.one_of(st.integers(LAST_NUMBER - 12, LAST_NUMBER), st.integers(1, 3)),
        expire_s=st.sampled_from([None, None, 0.2, 3.0]),
    )
    def begin(self, window: int, last: int, expire_s: float | None) -> None:
        acks = Acks(1, window, expire_s)
        self.window = window
        self.delay_s = min(_DELAY_S, (expire_s or 9) / 2)
        self.sender: SendWindow[int] = SendWindow(acks, last)
        self.receiver = ReceiveWindow(acks, _DELAY_S)

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        for _ in range(min(count, self.sender.room)):
            message = len(self.numbers) + 1
            self.numbers[message] = self.sender.send(message)
            self.there.append((self.numbers[message], message))

    @precondition(lambda self: self.sender.room == 0)
    @rule()
    def send_too_much(self) -> None:
        with pytest.raises(ValueError, match="no more may be sent"):
            self.sender.send(0)

    @rule()
    def send_again(self) -> None:
        """As SharpMessaging does when no ack comes: all that is outstanding, with its numbers."""
        for message in self.sender.outstanding:
            self.there.append((self.numbers[message], message))

    @precondition(lambda self: self.there)
    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.there))):
            number, message = self.there.popleft()
            if self.receiver.receive(number, self.now):
                self.got.append(message)
                if self.oldest_without_ack is None:
                    self.oldest_without_ack = self.now
        self._take()

    def _take(self) -> None:
        self._say(self.receiver.take(self.now))

    def _say(self, number: int | None) -> None:
        if number is not None:
            self.back.append(number)
            self.oldest_without_ack = None

    @rule()
    def acknowledge_early(self) -> None:
        self._say(self.receiver.take_early())

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.3, 0.6]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        deadline = self.receiver.deadline
        if deadline is not None and deadline <= until:
            self.now = deadline
            self._take()
            assert self.receiver.deadline is None
        self.now = until

    @precondition(lambda self: self.back)
    @rule()
    def ack_arrives(self) -> None:
        self.done += self.sender.acknowledge(self.back.popleft())

    @rule(number=st.integers(0, LAST_NUMBER))
    def ack_of_nothing(self, number: int) -> None:
        """What is not outstanding releases nothing."""
        numbers = {self.numbers[message] for message in self.sender.outstanding}
        if number not in numbers:
            unknown = self.sender.unknown_acks
            assert self.sender.acknowledge(number) == []
            assert self.sender.unknown_acks == unknown + 1

    @invariant()
    def never_more_than_agreed(self) -> None:
        assert 0 <= self.sender.room <= self.window
        assert self.sender.room == self.window - (len(self.numbers) - len(self.done))

    @invariant()
    def in_order_and_once(self) -> None:
        assert self.got == list(range(1, len(self.got) + 1))
        assert self.done == list(range(1, len(self.done) + 1))
        assert len(self.done) <= len(self.got) <= len(self.numbers)

    @invariant()
    def no_ack_is_late(self) -> None:
        if self.oldest_without_ack is not None:
            assert self.receiver.deadline is not None
            assert self.now <= self.oldest_without_ack + self.delay_s + 1e-6
            assert self.receiver.deadline <= self.oldest_without_ack + self.delay_s + 1e-6

    def teardown(self) -> None:
        while self.there or self.back or self.receiver.deadline is not None:
            if self.there:
                self.arrive(4)
            self.wait(0.6)
            while self.back:
                self.ack_arrives()
        assert self.done == self.got == list(self.numbers)


def test_two_ends() -> None:
    """R22, R26, R28, R29, R30, A13, A14, A15: a window of one is ``ack``."""
    run_state_machine_as_test(TwoEnds, settings=settings(max_examples=150, stateful_step_count=40))


def _ten() -> SendWindow[int]:
    """A window of ten with ten frames in it."""
    sender: SendWindow[int] = SendWindow(Acks(1, 10))
    for item in range(10):
        sender.send(item)
    return sender


def test_shedding_what_is_old_costs_no_look_at_all_that_waits() -> None:
    """It is done for each message that a slow client is to hear; what queues have stays."""
    outgoing = Outgoing(Acks(1, 1), None, 2**30, Budget(2**30))
    outgoing.add(OutgoingMessage(b"topic/cut", b"", bytes(MAX_FRAGMENT) + b"end"))
    outgoing.frames()  # its first part
    for number in range(100_000):
        outgoing.add(OutgoingMessage(b"topic/a", b"", b"old %07d" % number))
        if number == 1000:
            outgoing.add(OutgoingMessage(b"jobs", b"", b"job", queue=b"jobs", number=1))
    most = outgoing.backlog
    began = time.process_time()
    for number in range(2000):
        outgoing.add(OutgoingMessage(b"topic/a", b"", b"new %07d" % number))
        assert outgoing.shed(most) == (1, 18)
        assert outgoing.backlog == most
    assert time.process_time() - began < 5.0  # looks at all would take a minute
    outgoing.agree(None)
    sent = outgoing.frames()
    order = [sent.index(each) for each in (b"end", b"job", b"old 0002000", b"new 0001999")]
    assert order == sorted(order)
    assert b"old 0001999" not in sent


def test_numbers_begin_with_1_and_wrap() -> None:
    """R22, A12: 65535 is followed by 1; with acks or without."""
    for acks in (None, Acks(1, 32767)):
        sender: SendWindow[int] = SendWindow(acks)
        numbers = []
        for item in range(LAST_NUMBER + 2):
            numbers.append(sender.send(item))
            sender.acknowledge(numbers[-1])
        assert numbers == [*range(1, 65536), 1, 2]


def test_the_documents_example() -> None:
    """R29, A13: acknowledged up to 65533; an ack of 3 covers 65534, 65535, 1, 2 and 3."""
    sender: SendWindow[int] = SendWindow(Acks(1, 10), last=65533)
    assert [sender.send(item) for item in range(6)] == [65534, 65535, 1, 2, 3, 4]
    assert sender.acknowledge(3) == [0, 1, 2, 3, 4]
    assert sender.outstanding == (5,)


def test_an_early_ack_makes_room() -> None:
    """R26, R28: as much as it covers, and no more."""
    sender = _ten()
    assert sender.room == 0
    assert sender.acknowledge(4) == [0, 1, 2, 3]
    assert sender.room == 4


@pytest.mark.parametrize("number", [0, 11, 12, 32768, 65535, 65536, -1])
def test_unknown_numbers_release_nothing(number: int) -> None:
    """A14: nor does a number that was acknowledged before."""
    sender = _ten()
    assert sender.acknowledge(number) == []
    assert sender.acknowledge(3) == [0, 1, 2]
    assert sender.acknowledge(3) == sender.acknowledge(2) == []
    assert (sender.unknown_acks, sender.room) == (3, 3)


def test_without_acks_everything_may_go() -> None:
    """R25, R31: nothing is kept, nothing is acknowledged, and every frame is new."""
    sender: SendWindow[int] = SendWindow(None)
    receiver = ReceiveWindow(None)
    for item in range(1000):
        assert receiver.receive(sender.send(item) % 3, 0.0)
    assert (sender.room, sender.outstanding) == (UNLIMITED, ())
    assert sender.acknowledge(1000) == []
    assert receiver.take(1e9) is receiver.take_early() is receiver.deadline is None


def test_one_at_a_time() -> None:
    """R30, A15: with ``ack`` the next one waits for the ack of this one, which comes at once."""
    sender: SendWindow[int] = SendWindow(Acks(1, 1))
    receiver = ReceiveWindow(Acks(1, 1))
    for item in range(3):
        assert receiver.receive(sender.send(item), 0.0)
        assert sender.room == 0
        number = receiver.take(0.0)
        assert number is not None
        assert sender.acknowledge(number) == [item]


def test_acks_come_with_the_window_or_with_time() -> None:
    """R26, R29: no later than with the last frame that may come, and never for nothing."""
    receiver = ReceiveWindow(Acks(1, 3), 0.5)
    assert receiver.take(0.0) is receiver.deadline is None
    taken = []
    for number, now in ((1, 1.0), (2, 1.4), (3, 1.45), (4, 2.0)):
        assert receiver.receive(number, now)
        taken.append(receiver.take(now))
    assert taken == [None, None, 3, None]
    assert receiver.deadline == 2.5
    assert receiver.take(2.49) is None
    assert receiver.take(2.5) == 4
    assert receiver.take(99.0) is receiver.deadline is None


def test_an_impatient_peer_is_acknowledged_sooner() -> None:
    """It says after how long it takes a frame for lost."""
    receiver = ReceiveWindow(Acks(1, 3, expire_s=0.4), 0.5)
    receiver.receive(1, 1.0)
    assert receiver.deadline == pytest.approx(1.2)


def test_what_was_sent_again_is_acknowledged_again() -> None:
    """And not delivered again, across the wrap, too."""
    receiver = ReceiveWindow(Acks(1, 4))
    for number in (65534, 65535, 1, 2):
        assert receiver.receive(number, 0.0)
    assert receiver.take(0.0) == 2
    for number in (65534, 65535, 1, 2):
        assert not receiver.receive(number, 0.0)
        assert receiver.take(0.0) == 2
    assert receiver.receive(3, 0.0)
    assert receiver.duplicates == 4


@given(
    st.integers(1, 20),
    st.integers(0, LAST_NUMBER),
    st.lists(st.integers(0, 20), max_size=40),
)
def test_peers_that_count_zero(window: int, first: int, again: list[int]) -> None:
    """A12: 65535, 0, 1 is accepted as 65535, 1 is; so is a first number of any kind."""
    receiver = ReceiveWindow(Acks(1, window))
    said: list[int] = []
    for count in again:
        number = (first + len(said)) % (LAST_NUMBER + 1)
        assert receiver.receive(number, 0.0)
        said.append(number)
        for old in said[-min(count, window) :] if count else []:
            assert not receiver.receive(old, 0.0)
        assert receiver.take_early() == said[-1]


@pytest.mark.parametrize("number", [1, 4, 255, 256, 65535])
def test_the_payload_of_an_ack(number: int) -> None:
    """R32, A15: two bytes, big-endian; anything else is an ERROR."""
    payload = spell_ack(number)
    assert payload == number.to_bytes(2, "big")
    assert read_ack(payload) == number
    codec = Codec("client")
    codec.receive_data(spell_handshake(Handshake(1, 0, "")))
    assert codec.receive_data(spell_extension(3, payload)) == [ExtensionFrame(3, payload)]


@pytest.mark.parametrize("payload", [b"", b"\1", b"\0\0\0\4"])
def test_no_ack(payload: bytes) -> None:
    refusal = read_ack(payload)
    assert isinstance(refusal, Refusal)
    assert refusal.rule == "R32"
