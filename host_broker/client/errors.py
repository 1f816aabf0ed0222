"""What can go wrong between a program and its broker.

ClientError
├── ConnectFailed    nobody answers at that address, or the name is unknown
├── Refused          the broker said no; ``code`` is LightMQ's CONNACK code
├── NotThere         the LightMQ client that is called is not connected, or has gone
├── ConnectionLost   the broker closed or reset the connection, or broke the protocol
└── Timeout          the deadline passed; the connection is still open

BadArgument (a ValueError) is the caller's mistake: nothing was sent.
"""

import contextlib
from collections.abc import Iterator


class ClientError(Exception):
    """Anything a client reports; the text says what happened and what to do."""


class BadArgument(ValueError):
    """A topic, client id or payload that the protocol cannot carry; the text says why."""


class ConnectFailed(ClientError):
    """No connection could be made."""


class Refused(ClientError):
    """The broker refused this client. ``code`` is the CONNACK code as the document counts it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class NotThere(ClientError):
    """The client that is called is not connected, or went before it had answered."""


class ConnectionLost(ClientError):
    """The connection has ended; make a new one."""


class Timeout(ClientError):
    """An answer did not come, or bytes were not taken, before the deadline."""


@contextlib.contextmanager
def callers_mistakes() -> Iterator[None]:
    """Turn a codec's ``ValueError`` about what it shall spell into ``BadArgument``."""
    try:
        yield
    except ValueError as error:
        raise BadArgument(str(error)) from error
