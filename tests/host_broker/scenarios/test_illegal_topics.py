"""What is no topic does not get onto the bus, whatever a protocol's session makes of its input."""

from collections.abc import Sequence

import pytest

from host_broker.bus.commands import Command, Publish, Send, Subscribe
from tests.host_broker.scripted import Stage

_NO_TOPICS = [b"", b"/", b"/a", b"a/", b"x" * 256, b"\xff\xfe", b"a\0b"]


@pytest.mark.parametrize("topic", _NO_TOPICS)
def test_it_is_not_published(topic: bytes) -> None:
    """Others would be sent what their protocol forbids, and the journal would keep it."""
    stage = Stage()
    everyone, publisher = stage.enter(verbatim=True), stage.enter()
    stage.do(everyone, *(Subscribe(b"/".join([b"*"] * levels)) for levels in (1, 2, 3)))
    stage.do(
        publisher,
        Publish(b"x" * 255, b"before"),
        Publish(topic, b"refused"),
        Publish(topic, b"refused, too", retain=True),
        Publish(b"a", b"after"),
    )
    assert stage.discarded == {"bus.topic": 2}
    assert [record.count for record in stage.records] == [2]
    assert stage.broker.retained_count == 0
    assert not stage.closes


@pytest.mark.parametrize("topic", _NO_TOPICS)
def test_it_cannot_be_subscribed_to(topic: bytes) -> None:
    stage = Stage()
    client = stage.enter()
    limits: list[str] = []

    def answer(limit: str) -> Sequence[Command]:
        limits.append(limit)
        return [Send(b"no")]

    stage.do(client, Subscribe(topic, answer=answer), Subscribe(topic))
    assert limits == ["bus.topic"]
    assert stage.discarded == {"bus.topic": 2}
    assert not stage.closes
