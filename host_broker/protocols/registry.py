"""The protocols by name. The only place that knows them all."""

from collections.abc import Callable, Mapping

from host_broker.protocols.fmqp.server import FmqpServer
from host_broker.protocols.lightmq.server import LightmqServer
from host_broker.protocols.session import ProtocolServer
from host_broker.settings import Settings

RandomU16 = Callable[[], int]

PROTOCOLS = ("fmqp", "lightmq", "lightmq+fmqp")


def protocols(settings: Settings, random_u16: RandomU16) -> Mapping[str, ProtocolServer]:
    """Make one broker's protocols, by the names of their listeners."""
    fmqp = FmqpServer(settings.fmqp)
    lightmq = LightmqServer(settings.lightmq, random_u16)
    return dict(zip(PROTOCOLS, (fmqp, lightmq, lightmq.carrying(fmqp)), strict=True))
