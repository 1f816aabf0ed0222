"""Our stdout: bytes that go out at once, also into pipes."""

import contextlib
import os
import sys
from collections.abc import Iterator


class OutputFailed(Exception):
    """Our stdout takes no more, e.g. on a full disk."""


def put(data: bytes) -> None:
    """Write all of it now. Raises ``OutputFailed``, or ``BrokenPipeError`` after ``| head``."""
    if sys.stdout is None:
        raise OutputFailed("cannot write the output: stdout is closed")
    with writing():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """For those who write by other means: raises what ``put`` raises."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(f"cannot write the output: {error.strerror}") from error


def forget() -> None:
    """Write nothing more; the interpreter's flush at exit must not complain once again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
