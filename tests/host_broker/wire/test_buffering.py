"""The beginning of a frame is kept once and joined once."""

from host_broker.wire.buffering import Unfinished


def test_nothing_kept_is_nothing_copied() -> None:
    data = b"a whole read"
    assert Unfinished().complete(data) is data


def test_nothing_is_joined_before_the_frame_can_be_whole() -> None:
    """Else a long body in many reads is copied once per read."""
    unfinished = Unfinished()
    unfinished.keep(b"ab", needed=6)
    assert unfinished.complete(b"c") is None
    assert unfinished.complete(b"de") is None
    assert unfinished.complete(b"fg") == b"abcdefg"
    assert unfinished.complete(b"next") == b"next"
