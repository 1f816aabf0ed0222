"""LightMQ: a client with a name, PING and PONG, SEND and SENDRESP.

``events`` what is said; ``dialects`` the two numberings in use; ``codec`` bytes to events and
back; ``paths`` where a client lives on the bus; ``session`` states, names, silence; ``role`` what
an accepted client's SENDs are for: a ``mailbox`` on the bus, a ``caller`` of another client, a
``tunnel`` for another protocol; ``server`` makes them all, with ``admission`` and what is
``shared``; ``settings`` the section [lightmq].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""

from host_broker.protocol import (
    Admits,
    BrokerContext,
    EveryByte,
    FirstBytes,
    ProtocolServer,
    ProtocolSpec,
    byte_range,
)
from host_broker.protocols.lightmq.paths import CALLS, PATHS
from host_broker.protocols.lightmq.settings import LightmqSettings


def _server(settings: LightmqSettings, context: BrokerContext) -> ProtocolServer:
    # Only now: the command line reads addresses, and needs no server for that.
    from host_broker.protocols.lightmq.server import LightmqServer

    return LightmqServer(settings, context)


def _admits(settings: LightmqSettings) -> Admits:
    if not settings.clients:
        return "everybody"
    return "proved" if all(settings.clients.values()) else "named"


LIGHTMQ = ProtocolSpec(
    name="lightmq",
    title="LightMQ",
    journal_code=2,
    server=_server,
    settings=LightmqSettings,
    first_bytes=(
        FirstBytes((b"\x01", EveryByte, byte_range(1, 0xFF)), rank=40),  # CONNECT, good and bad
        FirstBytes((b"\x01\x01\x00\xff",), rank=40),  # CONNECT with a ClientID of 255 bytes
    ),
    path="client",
    connect_options=("token_file", "dialect"),
    client="host_broker.protocols.lightmq.client:LightmqClientSession",
    answers_until_stopped=True,
    authenticates=True,
    client_paths=PATHS,
    call_topics=CALLS,
    admits=_admits,
)


def tunnel(inner: ProtocolSpec) -> ProtocolSpec:
    """Return the protocol whose clients speak ``inner`` in the SENDs of LightMQ.

    Its listeners are its own: it begins as LightMQ does.
    """

    def server(settings: LightmqSettings, context: BrokerContext) -> ProtocolServer:
        from host_broker.protocols.lightmq.server import LightmqServer, TunnelServer

        lightmq = context.servers[LIGHTMQ.name]
        assert isinstance(lightmq, LightmqServer)  # noqa: S101 - registered before its tunnels
        return TunnelServer(lightmq.shared, context.servers[inner.name])

    return ProtocolSpec(
        name=f"{LIGHTMQ.name}+{inner.name}",
        title=f"{inner.title} inside LightMQ",
        journal_code=LIGHTMQ.journal_code,
        server=server,
        settings=LightmqSettings,
        section=LIGHTMQ.name,
        port=8766,
        path="client",
        connect_options=("token_file", "dialect"),
        client="host_broker.protocols.lightmq.client:TunnelClientSession",
        answers_until_stopped=True,
        authenticates=True,
        admits=LIGHTMQ.admits,
    )
