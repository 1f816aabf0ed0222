"""What a worker hears of its parent."""

import os
import threading

import pytest

from boards.session.worker_line import ParentLine


def test_lines_come_whole_and_the_end_is_told() -> None:
    read, write = os.pipe()
    ended = threading.Event()
    try:
        parent = ParentLine(read)
        os.write(write, b'the job\n{"check": "a"}\n{"che')
        assert parent.first() == "the job"
        parent.follow(ended.set)
        assert parent.wait(10) == {"check": "a"}
        assert parent.wait(0) is None
        os.write(write, b'ck": "b"}\n')
        assert parent.wait(10) == {"check": "b"}
        assert not ended.is_set()
    finally:
        os.close(write)
    assert ended.wait(10)
    os.close(read)


def test_a_parent_that_says_nothing_is_an_error() -> None:
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(EOFError, match="said nothing"):
        ParentLine(read).first()
    os.close(read)
