"""The protocols by name. The only place that knows them all."""

from collections.abc import Callable

from host_broker.protocols.fmqp.server import FmqpServer
from host_broker.protocols.lightmq.server import LightmqServer
from host_broker.protocols.session import ProtocolServer
from host_broker.settings import Settings

RandomU16 = Callable[[], int]

PROTOCOLS: dict[str, Callable[[Settings, RandomU16], ProtocolServer]] = {
    "fmqp": lambda settings, _: FmqpServer(settings.fmqp),
    "lightmq": lambda settings, random_u16: LightmqServer(settings.lightmq, random_u16),
}
