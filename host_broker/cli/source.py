"""Where ``motemq pub`` takes its messages from."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from host_broker.cli.standard_input import MOST_BYTES, StandardInput


def content(file: Path) -> bytes:
    """Read a file. Raises ``UsageError`` if it cannot be read or is above 64 MiB."""
    try:
        with file.open("rb") as opened:
            body = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error
    if len(body) > MOST_BYTES:
        raise click.UsageError(f"{file} is more than {MOST_BYTES >> 20} MiB")
    return body


@dataclass(frozen=True, slots=True)
class Source:
    """``body``, or the ``whole`` of stdin, ``repeat`` times; or each of the ``lines`` of stdin."""

    body: bytes
    whole: bool
    lines: bool
    repeat: int  # 0 is without end

    def messages(self, stdin: StandardInput) -> Iterator[bytes]:
        """Each message, when it is there."""
        if self.lines:
            yield from stdin.lines()
            return
        body = stdin.whole() if self.whole else self.body
        sent = 0
        while not self.repeat or sent < self.repeat:
            yield body
            sent += 1
