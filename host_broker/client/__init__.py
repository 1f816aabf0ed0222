"""The public client for Python programs on a PC: one interface for every protocol.

::

    with motemq.connect("fmqp://127.0.0.1:8765") as client:
        client.subscribe("home/*/temperature", confirm=True)
        client.publish("home/kitchen/temperature", b"21.5")
        for message in client.messages(timeout_s=2.0):
            ...

``connect`` gives a client for threads, ``connect_async`` the same for asyncio; docs/python.md.

``shell`` is both: reconnection, operations, bounds; ``subscriptions`` what has come and for whom;
``calling`` calls; ``connection`` one socket with one session; ``sessions`` which session;
``dialing`` reaches a broker; ``blocking`` and ``async_client`` are the faces, ``face`` what both
have in common, ``loop_thread`` the thread of the first; ``inbox``, ``unconfirmed``, ``backoff`` are
pure; ``first_words`` who else may answer. The sessions are ``protocols/*/client.py``, their
interface ``host_broker.client_session``.
"""

from host_broker.address import Address, AddressError, parse_address
from host_broker.client.async_client import AsyncClient, AsyncSubscription, Connecting
from host_broker.client.blocking import Client, Subscribing
from host_broker.client.sessions import check
from host_broker.client.shell import UNREAD_BYTES, Settings, Watcher
from host_broker.client_errors import (
    BadArgument,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotSupported,
    NotThere,
    Refused,
    Timeout,
)
from host_broker.client_session import ECHO_TOPICS, Ability, Message

__all__ = [
    "ECHO_TOPICS",
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
    "check",
    "connect",
    "connect_async",
    "parse_address",
]


def connect(
    url: str,
    *,
    timeout_s: float = 5.0,
    wait_s: float | None = None,
    reconnect: bool = False,
    calls: str | None = None,
    unseen: bool = False,
    dialect: str | None = None,
    watcher: Watcher | None = None,
    unread_bytes: int = UNREAD_BYTES,
) -> Client:
    """Connect to a broker: ``PROTOCOL://host:port`` or ``PROTOCOL://host:port/client-id``.

    By TLS ``PROTOCOLs://host:port?ca=FILE`` (also ``cert=FILE&key=FILE``; ``insecure=1`` trusts
    anyone); by unix socket ``PROTOCOL+unix:///path``, with ``?client_id=NAME``.

    ``timeout_s`` bounds connecting, and every later operation without a timeout of its own.
    ``wait_s``: how long to wait for a broker that is not there yet; 0, or without end with
    ``reconnect``, where 0 is not to wait at all: what is published before it is there is held.
    ``reconnect``: a lost connection is replaced by another (after 0.25 s … 10 s, a random half
    less), subscriptions and wills are made again, and every message that was published reaches a
    broker, a few maybe twice. ``calls``: the client is for calls of that client only, which must be
    there. ``unseen``: others need not know of this client (LightMQ: no presence, if the broker
    can). ``dialect``: the option of the address of that name, where the protocol has one.
    ``watcher`` is called when a connection is lost that will be replaced, with why, and with None
    when there is one again, in a thread of ours. ``unread_bytes``: so much of what came may wait
    for the program; then no more is read, and the broker's rule for slow receivers applies.

    Raises ``AddressError``, ``BadArgument``, ``ConnectFailed``, ``Refused``, ``NotThere``,
    ``Timeout``.
    """
    settings = Settings(timeout_s, wait_s, reconnect, calls, unseen, watcher, unread_bytes)
    return Client(_address(url, dialect), settings)


def connect_async(
    url: str,
    *,
    timeout_s: float = 5.0,
    wait_s: float | None = None,
    reconnect: bool = False,
    calls: str | None = None,
    unseen: bool = False,
    dialect: str | None = None,
    watcher: Watcher | None = None,
    unread_bytes: int = UNREAD_BYTES,
) -> Connecting:
    """The same for asyncio: ``async with connect_async(url) as client``, or await it."""
    settings = Settings(timeout_s, wait_s, reconnect, calls, unseen, watcher, unread_bytes)
    return Connecting(_address(url, dialect), settings)


def _address(url: str, dialect: str | None) -> Address:
    if not isinstance(url, str):
        raise TypeError(f"an address is str, not {type(url).__name__}")
    if dialect is not None:
        url += f"{'&' if '?' in url else '?'}dialect={dialect}"
    return parse_address(url)
