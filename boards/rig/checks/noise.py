"""A bad serial line: rubbish between and within the frames of the reliable link, both ways."""

from boards.bridge.reliable import ReliableBridge
from boards.rig.bench import Bench, CheckFailed, Invalid
from boards.rig.checks.declared import Check, Samples
from boards.rig.observer import connect_fmqp
from boards.rig.payloads import fate, numbered, told_fate

_COUNT = 60
_SIZE = 64
_EVERY = 4  # messages, then a piece of noise
# A delimiter, what looks like the beginning of a frame, text, and bytes that no code has.
_NOISE = b"\x00\x0e\x01\x1b\x00\x00boot: rst cause=4\r\n\xff\xfe\x00\x05"
_ARRIVAL_S = 30.0
_TAKE_MS = 20_000


def noise_reliable(bench: Bench) -> list[Samples]:
    """Rubbish on a line of the reliable link, both ways, costs no message, no order, no byte."""
    bridge = bench.bridge
    if not isinstance(bridge, ReliableBridge):
        raise Invalid("this board's line is not that of the reliable link")
    topic = bench.topic("noise")
    before = bridge.stray_bytes
    with bench.observe(bench.seen_at(topic)) as observer, bench.session():
        bench.call("send_numbered", topic=topic, size=_SIZE, count=_COUNT, noise=list(_NOISE))
        observer.wait_for(lambda seen: len(seen) >= _COUNT, _ARRIVAL_S)
        became = fate([seen.payload for seen in observer.seen()], _COUNT)
        if not became.is_good:
            raise CheckFailed(f"from the board: {became}")
        if bridge.stray_bytes == before:
            raise Invalid("the board made noise, but none came through the line")
        resent = bridge.resent_frames
        with connect_fmqp(bench.broker) as host:

            def publish() -> None:
                for number in range(_COUNT):
                    host.publish(bench.sent_to(topic), numbered(_SIZE, number))
                    if number % _EVERY == 0:
                        bridge.make_noise(_NOISE)

            result = bench.call(
                "take",
                kind="numbered",
                topic=topic,
                count=_COUNT,
                timeout_ms=_TAKE_MS,
                on_ready=publish,
                deadline_s=60.0,
            )
    became = told_fate(result, _COUNT)
    if not became.is_good:
        raise CheckFailed(f"to the board: {became}")
    if bridge.resent_frames == resent:
        raise Invalid("frames to the board were spoilt, but none had to be sent again")
    return []


CHECKS = (Check("noise_reliable", noise_reliable, needs=frozenset({"reliable"}), deadline_s=120.0),)
