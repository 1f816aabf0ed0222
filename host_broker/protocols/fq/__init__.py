"""fq: exchanges, programs, competing queues, peers.

``events`` what is said; ``codec`` bytes to events and back; ``topics`` exchange and route on the
bus, ``remembered`` so that each is worked out once; ``programs`` what a binding wants; ``queues``
their names, kinds and clients; ``session`` the two connections of a client; ``shared`` what all
have in common; ``server`` makes them; ``pages`` what is asked and said by HTTP; ``configuration``
what is in the tables that last, ``keeper`` who writes and reads them; ``internal`` the connections
of pages and tables; ``peering`` brokers to take messages from; ``client`` the other side;
``settings`` the section [fq].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""

from host_broker.protocol import BrokerContext, FirstBytes, ProtocolServer, ProtocolSpec
from host_broker.protocols.fq.configuration import TABLES
from host_broker.protocols.fq.pages import PAGES
from host_broker.protocols.fq.settings import FqSettings


def _server(settings: FqSettings, context: BrokerContext) -> ProtocolServer:
    # Only now: the command line reads addresses, and needs no server for that.
    from host_broker.protocols.fq.server import FqServer

    return FqServer(settings, context)


FQ = ProtocolSpec(
    name="fq",
    title="fq",
    journal_code=4,
    server=_server,
    settings=FqSettings,
    first_bytes=(
        FirstBytes((b"\xcc\x50\xca\xfe",), rank=10),  # commands
        FirstBytes((b"\xcc\x50\xfa\xce",), rank=10),  # data
        FirstBytes((b"\xcc\x50\xfe\xed",), rank=10),  # a peer
        FirstBytes((b"\xcc\x50\xfa\xde",), rank=10),  # an old one
        FirstBytes((b"\xcc\x50\xfe\xac",), rank=10),  # one that acknowledges
    ),
    path="free",
    user=True,
    connect_options=("exchange", "program", "bind", "heartbeat", "token_file"),
    client="host_broker.protocols.fq.client:FqClientSession",
    authenticates=True,
    pages=PAGES,
    tables=TABLES,
)
