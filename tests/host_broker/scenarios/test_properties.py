"""Properties of publications: their limits, who gets them, and where they are kept."""

import pytest

from host_broker.bus.commands import Consume, Enqueue, Publish, Subscribe
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.bus.publication import (
    PACKETS,
    WITH_PROPERTIES,
    Properties,
    pack,
    pack_properties,
    property_fault,
    unpack_properties,
    unpack_with_properties,
)
from tests.host_broker.scripted import Stage, run

_LARGEST = {f"{number:0255d}": bytes(64 * 1024) for number in range(64)}


@pytest.mark.parametrize(
    "properties",
    [
        {f"{number}": b"" for number in range(65)},
        {"n" * 256: b""},
        {"ü" * 128: b""},  # 256 bytes
        {"": b"x"},
        {"n": bytes(64 * 1024 + 1)},
        {"\udc80": b"x"},
    ],
    ids=["65", "long name", "long UTF-8", "no name", "long value", "no UTF-8"],
)
def test_properties_above_the_limits_refuse_that_publication_only(properties: Properties) -> None:
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    stage.do(client, Subscribe(b"a"), Consume(b"q", 9))
    stage.do(
        publisher,
        Publish(b"a", b"before"),
        Publish(b"a", b"refused", retain=True, properties=properties),
        Publish(b"a", b"after"),
        Enqueue(b"q", b"refused", properties),
        Enqueue(b"q", b"taken"),
    )
    given = stage.given(client)
    bodies = [body for each in given if isinstance(each, Delivery) for _, _, body in each.each()]
    assert bodies == [b"before", b"after"]
    assert [each.queue for each in given if isinstance(each, QueueDelivery)] == [b"q"]
    assert stage.discarded == {"bus.properties": 2}
    assert stage.broker.retained_count == 0
    assert sum(record.count for record in stage.records) == 3
    assert not stage.closes


def test_the_largest_properties_are_taken() -> None:
    assert property_fault(_LARGEST) == ""
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    stage.do(client, Subscribe(b"a"))
    stage.do(publisher, Publish(b"a", b"x", properties=_LARGEST))
    (given,) = stage.given(client)
    assert isinstance(given, Delivery)
    assert given.properties == _LARGEST
    (record,) = stage.records
    assert list(unpack_with_properties(record.body)) == [(0, b"a", b"x", _LARGEST)]


def test_they_cross_to_sessions_with_a_place_for_them_and_to_others_without() -> None:
    stage = Stage()
    translating, verbatim, publisher = stage.enter(), stage.enter(verbatim=True), stage.enter()
    stage.do(translating, Subscribe(b"*"), Consume(b"q", 9))
    stage.do(verbatim, Subscribe(b"*"))
    stage.do(
        publisher,
        run((b"a", b"1")),
        Publish(b"a", b"2", properties={"n": b"v"}),
        run((b"a", b"3")),
        Enqueue(b"q", b"4", {"n": b"w"}),
    )
    given = stage.given(translating)
    assert [dict(each.properties) for each in given if isinstance(each, Delivery)] == [
        {},
        {"n": b"v"},
        {},
    ]
    queued = [each for each in given if isinstance(each, QueueDelivery)]
    assert queued[0].messages[0].properties == {"n": b"w"}
    assert stage.got(verbatim) == b"".join(pack(0, b"a", b"%d" % number) for number in (1, 2, 3))


def test_they_are_journalled_in_encoding_2_between_others_in_order() -> None:
    stage = Stage()
    publisher = stage.enter()
    stage.do(
        publisher,
        run((b"a", b"1"), (b"b", b"2")),
        Publish(b"a", b"3", retain=True, properties={"n": b"v", "ü": b""}),
        Publish(b"a", b"4"),
    )
    records = [(record.encoding, record.count, bytes(record.body)) for record in stage.records]
    assert records == [
        (PACKETS, 2, pack(0, b"a", b"1") + pack(0, b"b", b"2")),
        (
            WITH_PROPERTIES,
            1,
            b"\0\0\0\x0e" + b"\1\0\0\0\1nv" + b"\2\0\0\0\0\xc3\xbc" + pack(4, b"a", b"3"),
        ),
        (PACKETS, 1, pack(0, b"a", b"4")),
    ]


def test_retained_messages_keep_them_over_a_restart() -> None:
    stage = Stage()
    publisher = stage.enter()
    properties = {"n": b"v", "m": bytes(300)}
    done = stage.do(publisher, Publish(b"a/b", b"x", retain=True, properties=properties))
    ((topic, entry),) = done.retained.items()
    assert entry is not None
    again = Stage()
    assert again.broker.restore([(topic, *entry)]) == 0
    client = again.enter()
    again.do(client, Subscribe(b"a/*", id=3))
    (given,) = again.given(client)
    assert isinstance(given, Delivery)
    assert (given.run, given.properties, given.subscriptions) == (
        pack(4, b"a/b", b"x"),
        properties,
        (3,),
    )


def test_a_retained_message_without_them_replaces_one_that_has_them() -> None:
    stage = Stage()
    client = stage.enter()
    stage.do(client, Publish(b"a", b"1", retain=True, properties={"n": b"v"}))
    assert stage.do(client, Publish(b"a", b"2", retain=True)).retained == {
        b"a": (pack(4, b"a", b"2"), b"")
    }
    stage.do(client, Subscribe(b"a"))
    (given,) = stage.given(client)
    assert isinstance(given, Delivery)
    assert given.properties == {}


def test_they_count_against_the_memory_of_retained_messages() -> None:
    stage = Stage(bus={"max_retained_bytes": 10_000})
    client = stage.enter()
    stage.do(client, Publish(b"a", b"x", retain=True, properties={"n": bytes(20_000)}))
    assert (stage.broker.retained_count, stage.broker.retained_refused) == (0, 1)


@pytest.mark.parametrize("cut", range(1, 14))
def test_properties_cut_short_are_an_error(cut: int) -> None:
    spelled = pack_properties({"name": b"value", "n": b""})
    whole = pack_properties({"name": b"value"})
    assert unpack_properties(spelled) == {"name": b"value", "n": b""}
    if cut != len(whole):
        with pytest.raises(ValueError, match="cut short"):
            unpack_properties(spelled[:cut])
