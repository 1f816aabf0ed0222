"""How a command ends that cannot do its part: one line on stderr and an exit code."""

import contextlib
from collections.abc import Iterator

import click

from host_broker.cli import standard_output
from host_broker.printable import printable

_OUT_OF_TIME = 124  # as timeout(1) says it
_INTERRUPTED = 130  # 128 + SIGINT, as a shell says it
_PIPE_CLOSED = 141  # 128 + SIGPIPE


class OutOfTime(Exception):
    """The time the user gave is over; the text says what is missing."""


@contextlib.contextmanager
def failing_clearly(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the given errors into ``NAME: error: TEXT`` and exit code 1, ``OutOfTime`` into 124.

    An ``OSError`` is said as its file and why, without its number.

    An output that cannot be written is 1, too. Ctrl-C gives 130 without a word; a reader of our
    stdout that went away (``| head``) gives 141, also without a word.
    """
    try:
        yield
    except errors as error:
        click.echo(f"{name}: error: {printable(_said(error))}", err=True)
        raise SystemExit(1) from error
    except standard_output.OutputFailed as error:
        standard_output.forget()
        click.echo(f"{name}: error: {printable(str(error))}", err=True)
        raise SystemExit(1) from error
    except OutOfTime as error:
        click.echo(f"{name}: error: {printable(str(error))}", err=True)
        raise SystemExit(_OUT_OF_TIME) from error
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except BrokenPipeError:
        standard_output.forget()
        raise SystemExit(_PIPE_CLOSED) from None


def _said(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
