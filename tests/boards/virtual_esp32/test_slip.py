"""SLIP: any frame, any cuts, any noise."""

from hypothesis import given
from hypothesis import strategies as st

from boards.virtual.esp32.slip import MAX_FRAME, SlipDecoder, encode

_FRAMES = st.lists(st.binary(min_size=1, max_size=64), max_size=8)


def test_the_two_special_bytes_are_escaped() -> None:
    assert encode(b"\xc0a\xdb") == b"\xc0\xdb\xdca\xdb\xdd\xc0"


@given(_FRAMES, st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[bytes], data: st.DataObject
) -> None:
    line = b"".join(map(encode, frames))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(line)), max_size=8)))
    decoder = SlipDecoder()
    out = []
    for start, end in zip([0, *cuts], [*cuts, len(line)], strict=True):
        out += decoder.receive(line[start:end])
    assert out == frames


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=20))
def test_after_any_noise_the_second_frame_gets_through(noise: bytes, frame: bytes) -> None:
    decoder = SlipDecoder()
    decoder.receive(noise)
    assert (decoder.receive(encode(frame)) + decoder.receive(encode(frame)))[-1] == frame


def test_a_frame_beyond_the_limit_is_dropped() -> None:
    decoder = SlipDecoder()
    assert decoder.receive(encode(bytes(MAX_FRAME))) == [bytes(MAX_FRAME)]
    assert decoder.receive(encode(bytes(MAX_FRAME + 1))) == []
    assert decoder.receive(b"\xc0" + encode(b"next")) == [b"next"]
