"""MicroMsg2: negotiated extensions, acknowledged messages, filtered subscriptions.

``events`` what is said; ``grammar`` the three small languages inside frames; ``codec`` bytes to
events and back; ``extensions`` those that there are; ``negotiation`` the handshake;
``windows`` who acknowledges what, and when; ``assembly`` fragments to messages; ``values`` what
properties and filters are made of; ``filters`` what a subscription wants; ``destinations`` topics,
queues, and the commands of pub/sub; ``dotnet`` the type of a message; ``refusal`` why a connection
ends; ``outgoing`` what a client is yet to be sent; ``session`` a connection; ``server`` makes them;
``settings`` the section [micromsg2].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``, which also says what
is still to come: the registry does not name it yet, so that no listener speaks it.
"""

from host_broker.protocol import BrokerContext, ProtocolServer, ProtocolSpec
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
    answers_until_stopped=True,
)
