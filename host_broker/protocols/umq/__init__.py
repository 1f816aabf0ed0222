"""UMQ: calls, topics and attachments over a WebSocket; the broker in a browser.

``events`` what is said; ``codec`` text messages to what they say and back; ``attachments`` which
binary belongs to which text; ``peer`` one end of a connection, both ends alike; ``websocket`` bytes
to messages; ``session`` one connection of the broker; ``calls`` the broker's own calls;
``patterns`` what may be subscribed to; ``updates`` what waits for a client; ``shared`` what all
have in common; ``server`` makes them; ``client`` the other side; ``settings`` the section [umq].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""

from host_broker.pages import Page
from host_broker.protocol import BrokerContext, FirstBytes, ProtocolServer, ProtocolSpec
from host_broker.protocols.umq.settings import UmqSettings


def _server(settings: UmqSettings, context: BrokerContext) -> ProtocolServer:
    # Only now: the command line reads addresses, and needs no server for that.
    from host_broker.protocols.umq.server import UmqServer

    return UmqServer(settings, context)


UMQ = ProtocolSpec(
    name="umq",
    title="UMQ",
    journal_code=5,
    server=_server,
    settings=UmqSettings,
    # Before HTTP, which it begins as: the request for a WebSocket at this path.
    first_bytes=(FirstBytes((b"GET /umq", frozenset(b" ?")), rank=15),),
    path="client",
    user=True,
    connect_options=("token_file",),
    client="host_broker.protocols.umq.client:UmqClientSession",
    answers_until_stopped=True,
    authenticates=True,
    # Asked by a connection on which HTTP was spoken before.
    pages=(Page("/umq"),),
    looks_back=True,
)
