"""MicroMsg2: negotiated extensions, acknowledged messages, filtered subscriptions.

``events`` what is said; ``grammar`` the three small languages inside frames; ``codec`` bytes to
events and back; ``extensions`` those that there are; ``vendor`` those that packages bring;
``negotiation`` the handshake; ``windows`` who acknowledges what, and when; ``assembly`` fragments
to messages; ``values`` what properties and filters are made of; ``filters`` what a subscription
wants; ``destinations`` topics, queues, the commands of pub/sub; ``dotnet`` the type of a message;
``refusal`` why a connection ends; ``outgoing`` what a peer is yet to be sent; ``receipts`` what a
client may acknowledge while its program works; ``json_payload`` what the extension json allows;
``session`` a connection; ``server`` makes them; ``client`` the other side; ``settings`` the section
[micromsg2].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""

from host_broker.protocol import (
    BrokerContext,
    FirstBytes,
    ProtocolServer,
    ProtocolSpec,
    byte_range,
)
from host_broker.protocols.micromsg2.settings import MicroMsg2Settings


def _server(settings: MicroMsg2Settings, context: BrokerContext) -> ProtocolServer:
    # Only now: the command line reads addresses, and needs no server for that.
    from host_broker.protocols.micromsg2.server import MicroMsg2Server

    return MicroMsg2Server(settings, context)


MICROMSG2 = ProtocolSpec(
    name="micromsg2",
    title="MicroMsg2",
    journal_code=3,
    server=_server,
    settings=MicroMsg2Settings,
    port=8767,
    first_bytes=(
        FirstBytes((b"\x01\x00\x00",), rank=30),  # 1.0; the flags are reserved
        FirstBytes((b"\x02\x00\x00",), rank=30),  # 2.0, which is answered with 1.0 (A28)
        FirstBytes((b"\x01\x01\x00", byte_range(1, 0xFE)), rank=30),  # 1.1 with an identity
    ),
    path="client",
    connect_options=("token_file", "window", "json", "ack", "dotnet"),
    client="host_broker.protocols.micromsg2.client:MicroMsg2ClientSession",
    answers_until_stopped=True,
    authenticates=True,
)
