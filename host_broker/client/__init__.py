"""The public client for programs on a PC: synchronous, every operation with a deadline.

::

    with connect("fmqp://127.0.0.1:8765") as client:
        client.subscribe("home/*/temperature")
        client.sync()                      # the subscription is active now
        client.publish("home/kitchen/temperature", b"21.5")
        message = client.receive(timeout_s=2.0)

A LightMQ client that is connected to the broker is asked like this::

    with Call("fmqp://127.0.0.1:8765", "kitchen") as kitchen:
        answer = kitchen.ask(b"how warm?", timeout_s=2.0)

``errors`` what can go wrong; ``dialing`` reaches a broker; ``link`` the bytes, ``first_words`` who
else may answer; ``connection`` what both clients have in common; ``fmqp`` and ``lightmq`` the two,
``carried`` the one in the other; ``calling`` other clients.
"""

from typing import Literal

from host_broker.address import CARRIED, AddressError, parse_address
from host_broker.client.calling import Call
from host_broker.client.carried import CarriedLine
from host_broker.client.errors import (
    BadArgument,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotThere,
    Refused,
    Timeout,
)
from host_broker.client.fmqp import FmqpClient, Message
from host_broker.client.lightmq import LightmqClient, Request
from host_broker.client.link import Link

__all__ = [
    "AddressError",
    "BadArgument",
    "Call",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "FmqpClient",
    "LightmqClient",
    "Message",
    "NotThere",
    "Refused",
    "Request",
    "Timeout",
    "connect",
]


def connect(
    url: str,
    *,
    timeout_s: float = 5.0,
    dialect: Literal["spec", "gbaranski"] = "spec",
) -> FmqpClient | LightmqClient:
    """Connect to a broker: ``fmqp://host:port`` or ``lightmq://host:port/client-id``.

    By TLS ``fmqps://host:port?ca=FILE`` (also ``cert=FILE&key=FILE``; ``insecure=1`` trusts anyone)
    and ``lightmqs://…``. By unix socket ``fmqp+unix:///path`` and
    ``lightmq+unix:///path?client_id=NAME``. FMQP inside LightMQ by ``lightmq+fmqp://…``: an FMQP
    client with a name. ``?token_file=FILE`` proves the name to a broker that asks for it.

    ``timeout_s`` bounds connecting, and every later operation without a timeout of its own.
    ``dialect`` is LightMQ's (docs: the broker's setting ``lightmq.dialect``). Without a client id
    LightMQ gets a random one. Raises ``AddressError``, ``BadArgument``, ``ConnectFailed``,
    ``Refused``, ``Timeout``.
    """
    address = parse_address(url)
    if address.protocol == "lightmq":
        return LightmqClient(address, timeout_s, dialect)
    if address.protocol == CARRIED:
        return FmqpClient(CarriedLine(LightmqClient(address, timeout_s, dialect)), timeout_s)
    return FmqpClient(Link(address, timeout_s), timeout_s)
