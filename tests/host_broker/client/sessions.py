"""Client sessions without sockets: made with known randomness, fed in any cuts."""

from collections.abc import Iterable, Sequence

from host_broker.client_session import ClientSession, Event, Message, Messages, Setup
from host_broker.protocols.fmqp.client import FmqpClientSession
from host_broker.protocols.lightmq.client import LightmqClientSession, TunnelClientSession

WHERE = "broker.example:1"


def setup(protocol: str = "fmqp", **how: object) -> Setup:
    return Setup(
        where=WHERE,
        protocol=protocol,
        random_bytes=lambda count: b"\x07" * count,
        **how,  # type: ignore[arg-type]
    )


def fmqp() -> FmqpClientSession:
    return FmqpClientSession(setup())


def lightmq(**how: object) -> LightmqClientSession:
    return LightmqClientSession(setup("lightmq", **how))


def tunnel() -> TunnelClientSession:
    return TunnelClientSession(setup("lightmq+fmqp", inner=FmqpClientSession))


def sent(session: ClientSession) -> bytes:
    return b"".join(session.data_to_send())


def fed(session: ClientSession, reads: Iterable[bytes], now: float = 1.0) -> list[Event]:
    """Hand reads to a session; messages of neighbouring batches are joined."""
    events: list[Event] = []
    for data in reads:
        events += session.receive_data(data, now)
    return joined(events)


def joined(events: Sequence[Event]) -> list[Event]:
    whole: list[Event] = []
    for event in events:
        last = whole[-1] if whole else None
        if isinstance(event, Messages) and isinstance(last, Messages):
            whole[-1] = Messages([*last.messages, *event.messages])
        else:
            whole.append(event)
    return whole


def messages(events: Iterable[Event]) -> list[Message]:
    return [each for event in events if isinstance(event, Messages) for each in event.messages]
