"""Retained messages, looked at page by page."""

from host_broker.bus.publication import RETAINED, pack
from host_broker.bus.retained import Retained
from host_broker.bus.work import Work


class _Compared(bytes):
    """A topic that counts how often topics are compared."""

    times = 0

    def __lt__(self, other: bytes) -> bool:
        _Compared.times += 1
        return bytes.__lt__(self, other)

    __hash__ = bytes.__hash__


def put(retained: Retained, topic: bytes) -> None:
    assert retained.put(topic, pack(RETAINED, bytes(topic), b"x"))


def test_pages_are_in_order_behind_a_topic_and_begin_with_a_prefix() -> None:
    retained = Retained(100, 1 << 20)
    for topic in (b"b/2", b"a/1", b"b/1", b"c", b"b", b"b/3"):
        put(retained, topic)
    retained.put(b"b/9", b"", feedback=True)
    retained.clear(b"b/3")

    def page(prefix: bytes, after: bytes, most: int = 9) -> list[bytes]:
        return [each.topic for each in retained.page(prefix, after, most)]

    assert page(b"", b"") == [b"a/1", b"b", b"b/1", b"b/2", b"c"]
    assert page(b"", b"b", 2) == [b"b/1", b"b/2"]
    assert page(b"b/", b"") == page(b"b/", b"a") == page(b"b/", b"b/") == [b"b/1", b"b/2"]
    assert page(b"b/", b"b/1") == [b"b/2"]
    assert page(b"b/", b"b/2") == page(b"x", b"") == page(b"", b"c") == []


def test_a_page_costs_what_it_has_however_many_topics_there_are() -> None:
    """Also when one comes or goes between any two."""
    work = Work()
    retained = Retained(100_000, 1 << 30, work)
    for number in range(20_000):
        put(retained, _Compared(b"t/%05d" % (number * 7919 % 20_000)))
    for number in range(50):
        put(retained, _Compared(b"new/%d" % number))
        retained.clear(b"t/%05d" % number)
        _Compared.times, steps = 0, work.steps
        assert len(retained.page(b"t/", b"t/01000", 10)) == 10
        assert work.steps - steps == 10
        assert _Compared.times < 100
