"""MoteMQ: one command, and one client for Python programs.

::

    import motemq

    with motemq.connect("fmqp://127.0.0.1:8765") as client:
        client.publish("home/lamp", b"on", retain=True)

What is exported is ``host_broker.client``'s, imported when it is first used, so that ``motemq pub
--help`` loads neither that nor Spark. ``cli`` names every sub-command and imports it on first use;
``demo`` joins the parts by running their commands, as a person would.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host_broker.client import (
        Ability,
        Address,
        AddressError,
        AsyncClient,
        AsyncSubscription,
        BadArgument,
        Client,
        ClientError,
        ConnectFailed,
        ConnectionLost,
        Message,
        NotSupported,
        NotThere,
        Refused,
        Subscribing,
        Timeout,
        connect,
        connect_async,
    )

__version__ = "0.1.0"

__all__ = [
    "Ability",
    "Address",
    "AddressError",
    "AsyncClient",
    "AsyncSubscription",
    "BadArgument",
    "Client",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "Message",
    "NotSupported",
    "NotThere",
    "Refused",
    "Subscribing",
    "Timeout",
    "__version__",
    "connect",
    "connect_async",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'motemq' has no attribute {name!r}")
        import host_broker.client

        return getattr(host_broker.client, name)


def __dir__() -> list[str]:
    return __all__
