"""FMQP topics, pure."""

from checks import check, equal, raises, run

from umotemq.topic import is_equivalent, is_valid, normalised


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
        got = is_equivalent(pattern.split(b"/"), padded, 3, 3 + len(topic))
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
        equal(bool(is_valid(topic)), want, repr(topic))


@check
def topics_of_the_user_are_checked():
    equal(normalised(b"//a/b/"), b"a/b")
    for wrong in (b"", b"///", b"a\0", b"\xff", b"t" * 256):
        raises(ValueError, normalised, wrong)
    raises(TypeError, normalised, "text")


run()
