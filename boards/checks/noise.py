"""A bad serial line: rubbish between and within the frames of the reliable link, both ways."""

from boards.bridge.bridge import ReliableBridge
from boards.checks.declared import Check
from boards.checks.payloads import expect_heard, send_down
from boards.session.board_session import BoardSession, Invalid

_COUNT = 60
_SIZE = 64
_EVERY = 4  # messages, then a piece of noise
# A delimiter, what looks like the beginning of a frame, text, and bytes that no code has.
_NOISE = b"\x00\x0e\x01\x1b\x00\x00boot: rst cause=4\r\n\xff\xfe\x00\x05"
_ARRIVAL_S = 30.0
_TAKE_MS = 20_000


def noise_reliable(board: BoardSession) -> None:
    """Rubbish on a line of the reliable link, both ways, costs no message, no order, no byte."""
    bridge = board.bridge
    if not isinstance(bridge, ReliableBridge):
        raise Invalid("this board's line is not that of the reliable link")
    topic = board.topic("noise")
    before = bridge.stray_bytes
    with board.observe(board.seen_at(topic)) as observer, board.session():
        board.call("send_numbered", topic=topic, size=_SIZE, count=_COUNT, noise=list(_NOISE))
        expect_heard(observer, _COUNT, _ARRIVAL_S)
        if bridge.stray_bytes == before:
            raise Invalid("the board made noise, but none came through the line")
        resent = bridge.resent_frames

        def make_noise(number: int) -> None:
            if number % _EVERY == 0:
                bridge.make_noise(_NOISE)

        send_down(
            board,
            topic,
            size=_SIZE,
            count=_COUNT,
            between=make_noise,
            timeout_ms=_TAKE_MS,
            deadline_s=60.0,
        )
    if bridge.resent_frames == resent:
        raise Invalid("frames to the board were spoilt, but none had to be sent again")


CHECKS = (Check("noise_reliable", noise_reliable, needs=frozenset({"reliable"}), deadline_s=120.0),)
