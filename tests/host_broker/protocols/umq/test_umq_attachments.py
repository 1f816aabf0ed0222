"""Which binary belongs to which text."""

from hypothesis import given
from hypothesis import strategies as st

from host_broker.protocols.umq.attachments import AttachmentQueue
from host_broker.protocols.umq.codec import Message
from host_broker.protocols.umq.events import Attachment, Missing
from host_broker.wire.budget import Budget


def _message(number: int, attachments: int) -> Message:
    return Message("C", number, "", attachments)


def test_binaries_belong_to_what_was_announced_first() -> None:
    """R5, A10: other texts may come before them."""
    queue = AttachmentQueue(10, Budget(1000))
    one, other = _message(1, 2), _message(2, 1)
    assert queue.announce(one)
    assert queue.settle(b"a") is None
    assert queue.announce(other)
    assert queue.settle(b"b") == (one, [b"a", b"b"])
    assert queue.settle(b"c") == (other, [b"c"])


def test_an_error_takes_the_place_of_the_oldest() -> None:
    """A8, R15: whoever announced it."""
    queue = AttachmentQueue(10, Budget(1000))
    one, other = _message(1, 1), _message(2, 1)
    queue.announce(one)
    queue.announce(other)
    assert queue.settle(Missing("gone")) == (one, [Missing("gone")])
    assert queue.settle(b"there") == (other, [b"there"])


def test_nothing_is_awaited() -> None:
    """A9."""
    queue = AttachmentQueue(10, Budget(1000))
    assert queue.settle(b"stray") == "unannounced"
    assert queue.settle(Missing("stray")) == "unannounced"


def test_so_many_may_be_awaited() -> None:
    """umq.max_attachments: of all messages together."""
    queue = AttachmentQueue(3, Budget(1000))
    assert queue.announce(_message(1, 2))
    assert not queue.announce(_message(2, 2))
    assert queue.announce(_message(3, 1))
    assert not queue.announce(_message(4, 1))
    queue.settle(b"")
    assert queue.announce(_message(5, 1))


def test_what_has_come_is_held_until_the_last_one_is_there() -> None:
    held = Budget(10)
    queue = AttachmentQueue(10, held)
    queue.announce(_message(1, 3))
    queue.settle(b"12345")
    assert held.left == 5
    assert queue.settle(b"123456") == "held"
    assert held.left == 5
    queue.close()
    assert held.left == 10


@given(
    st.lists(st.integers(1, 4), max_size=20),
    st.lists(st.one_of(st.binary(max_size=5), st.just(Missing("gone"))), max_size=80),
    st.randoms(use_true_random=False),
)
def test_any_order_is_that_of_a_simple_list(
    counts: list[int], attachments: list[Attachment], random: object
) -> None:
    """R5, A8, A10: announcements and binaries in any mixture, against slices of one list."""
    held = Budget(10_000)
    queue = AttachmentQueue(1000, held)
    messages = [_message(number, count) for number, count in enumerate(counts)]
    expected = []
    position = 0
    for message in messages:
        part = attachments[position : position + message.attachments]
        position += message.attachments
        if len(part) == message.attachments:
            expected.append((message, part))
    waiting, came = list(messages), list(attachments)
    found = []
    announced = 0
    while waiting or (came and announced > 0):
        if waiting and (not came or not announced or random.random() < 0.5):  # type: ignore[attr-defined]
            message = waiting.pop(0)
            assert queue.announce(message)
            announced += message.attachments
        else:
            settled = queue.settle(came.pop(0))
            announced -= 1
            assert not isinstance(settled, str)
            if settled is not None:
                found.append(settled)
    assert found == expected
    assert queue.missing == announced
    queue.close()
    assert held.left == 10_000


def test_a_text_is_held_until_its_attachments_are_there() -> None:
    """bus.max_held_bytes: what is announced and does not come is no way round it."""
    held = Budget(100)
    queue = AttachmentQueue(10, held)
    assert queue.announce(Message("C", 1, "x" * 60, 1))
    assert held.left == 40
    other = Message("C", 2, "x" * 60, 1)
    assert not queue.announce(other)
    assert queue.has_room(other)
    queue.settle(b"12345")
    assert held.left == 100
    assert queue.announce(Message("C", 3, "ä" * 20, 1))
    assert held.left == 20
    queue.close()
    assert held.left == 100
