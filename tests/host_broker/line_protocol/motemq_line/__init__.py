"""A line protocol: what a person with ``nc`` can speak.

``settings`` the section [line]; ``codec`` lines to events and back; ``session`` events to bus
commands, deliveries to lines; ``server`` makes the sessions.
"""

from host_broker.protocol import FirstBytes, ProtocolSpec
from motemq_line.codec import VERBS
from motemq_line.server import LineServer
from motemq_line.settings import LineSettings

LINE = ProtocolSpec(
    name="line",
    title="line",
    journal_code=200,
    server=LineServer,
    settings=LineSettings,
    first_bytes=tuple(FirstBytes((verb,)) for verb in VERBS),
    answers_until_stopped=True,
)
