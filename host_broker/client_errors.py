"""What can go wrong between a program and its broker.

ClientError
├── ConnectFailed    nobody answers at that address, or the name is unknown
├── Refused          the broker said no; ``code`` is the protocol's own number for the reason
├── NotThere         the client that is called is not connected, or has gone
├── ConnectionLost   the broker closed or reset the connection, or broke the protocol
└── Timeout          the deadline passed; the connection is still open

BadArgument (a ValueError) is the caller's mistake: nothing was sent.
└── NotSupported     the protocol has no such thing; the text says which protocols have
"""

import contextlib
from collections.abc import Iterator


class ClientError(Exception):
    """Anything a client reports; the text says what happened and what to do."""


class BadArgument(ValueError):
    """A topic, client id or payload that the protocol cannot carry; the text says why."""


class NotSupported(BadArgument):
    """The protocol cannot do this at all; the text says which protocols can."""


class ConnectFailed(ClientError):
    """No connection could be made. ``nobody_listens``: a broker may come there at any moment."""

    def __init__(self, text: str, *, nobody_listens: bool = False) -> None:
        super().__init__(text)
        self.nobody_listens = nobody_listens


class Refused(ClientError):
    """The broker refused. ``code`` is the protocol's number for the reason (LightMQ: the CONNACK
    code as the document counts it), 0 if it has none. ``of_name``: it may be about this client's
    name, so that another one would do."""

    def __init__(self, text: str, code: int = 0, *, of_name: bool = True) -> None:
        super().__init__(text)
        self.code = code
        self.of_name = of_name


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
