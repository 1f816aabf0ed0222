"""How a command ends that cannot do its part: one line on stderr and an exit code."""

import contextlib
import os
import sys
from collections.abc import Iterator

import click

_INTERRUPTED = 130  # 128 + SIGINT, as a shell says it
_PIPE_CLOSED = 141  # 128 + SIGPIPE


@contextlib.contextmanager
def failing_clearly(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the given errors into ``NAME: error: TEXT`` and exit code 1.

    Ctrl-C gives 130 without a word; a reader of our stdout that went away (``| head``) gives 141,
    also without a word.
    """
    try:
        yield
    except errors as error:
        click.echo(f"{name}: error: {error}", err=True)
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit, which must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_PIPE_CLOSED) from None
