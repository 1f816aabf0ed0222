"""How a command ends that cannot do its part: one line on stderr and an exit code."""

import contextlib
import os
import sys
from collections.abc import Iterator

import click

_OUT_OF_TIME = 124  # as timeout(1) says it
_INTERRUPTED = 130  # 128 + SIGINT, as a shell says it
_PIPE_CLOSED = 141  # 128 + SIGPIPE


class OutOfTime(Exception):
    """The time the user gave is over; the text says what is missing."""


class OutputFailed(Exception):
    """Our stdout takes no more, e.g. on a full disk."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """For writing to stdout: ``OutputFailed`` if it fails, ``BrokenPipeError`` after ``| head``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(f"cannot write the output: {error.strerror}") from error


@contextlib.contextmanager
def failing_clearly(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the given errors into ``NAME: error: TEXT`` and exit code 1, ``OutOfTime`` into 124.

    ``OutputFailed`` is 1, too. Ctrl-C gives 130 without a word; a reader of our stdout that went
    away (``| head``) gives 141, also without a word.
    """
    try:
        yield
    except errors as error:
        click.echo(f"{name}: error: {error}", err=True)
        raise SystemExit(1) from error
    except OutputFailed as error:
        _never_flush_again()
        click.echo(f"{name}: error: {error}", err=True)
        raise SystemExit(1) from error
    except OutOfTime as error:
        click.echo(f"{name}: error: {error}", err=True)
        raise SystemExit(_OUT_OF_TIME) from error
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except BrokenPipeError:
        _never_flush_again()
        raise SystemExit(_PIPE_CLOSED) from None


def _never_flush_again() -> None:
    # The interpreter flushes stdout once more at exit, which must not complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
