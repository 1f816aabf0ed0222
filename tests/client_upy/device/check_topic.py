"""FMQP topics, pure."""

from checks import Memory, check, equal, run

from umotemq.fmqp import FmqpClient
from umotemq.topic import is_text, match


def is_taken(topic):
    """Say whether a program may subscribe to it."""
    try:
        FmqpClient(Memory(), name=b"n", tx_size=300).subscribe(topic, print)
    except ValueError:
        return False
    return True


@check
def topics_are_equivalent_level_by_level():
    for pattern, topic, want in (
        (b"a/b", b"a/b", True),
        (b"a/*", b"a/b", True),
        (b"a/b", b"a/*", True),
        (b"*/b", b"a/*", True),
        (b"*", b"a", True),
        (b"*", b"a/b", False),
        (b"a/*", b"a", False),
        (b"a", b"a/b", False),
        (b"a*", b"ab", False),
        (b"a*", b"a*", True),
        (b"a//b", b"a/*/b", True),
        (b"a//b", b"a/b", False),
        (b"*/*/*", b"$/info/clients", True),
        (b"a/b", b"a/bc", False),
        (b"a/bc", b"a/b", False),
    ):
        padded = bytearray(b"xx/" + topic + b"/yy")
        got = match(pattern.split(b"/"), padded, 3, 3 + len(topic), True)
        equal(got, want, "%r ~ %r" % (pattern, topic))


@check
def topics_are_utf8_without_nul():
    for topic, want in (
        (b"abc", True),
        ("é€😀".encode(), True),
        ("߿ࠀ퟿￿𐀀".encode(), True),
        (b"\xf4\x8f\xbf\xbf/\xc2\x80", True),
        (b"a\0b", False),
        (b"\xff", False),
        (b"\xc0\x80", False),
        (b"\xc1\xbf", False),
        (b"\xe0\x80\x80", False),
        (b"\xe0\x9f\xbf", False),
        (b"\xed\xa0\x80", False),
        (b"\xed\xbf\xbf", False),
        (b"\xf0\x8f\xbf\xbf", False),
        (b"\xe2\x82", False),
        (b"\xf4\x90\x80\x80", False),
        (b"\xf7\xbf\xbf\xbf", False),
        (b"\x80", False),
    ):
        equal((is_text(topic), is_taken(topic)), (want, want), repr(topic))
        levels = [b"*"] * (topic.count(b"/") + 1)
        equal(match(levels, b"xx" + topic, 2, 2 + len(topic), False), want, repr(topic))


@check
def topics_of_the_user_are_checked():
    for wrong in (b"", b"///", b"a\0", b"\xff", b"t" * 256):
        equal(is_taken(wrong), False, repr(wrong))
    for right in (b"//a/b/", b"a", b"t" * 255, "é/".encode()):
        equal(is_taken(right), True, repr(right))
    equal((is_taken("text/é"), is_taken("")), (True, False))


@check
def no_topic_is_like_none():
    for trusted in (False, True):
        equal(match([b"*"], b"a", 1, 1, trusted), False)
        equal(match([b"*", b"b"], b"a/b", 0, 3, trusted), True)


run()
