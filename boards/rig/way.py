"""How a board finds its broker: straight, or through the fault proxy."""

from boards.rig.plan import Job
from boards.rig.proxy.control import ProxyControl, Route


class Way:
    """The way of one board to the run's broker.

    ``broker`` is that of the board's protocol, HOST:PORT; ``address`` is where the board, or its
    bridge, connects. ``route`` is None where no proxy can stand.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.broker = job.fmqp if job.board.protocol == "fmqp" else job.lightmq
        host, _, port = self.broker.rpartition(":")
        self.address = (host, int(port))
        self.route: Route | None = None

    def open(self) -> None:
        """Have the proxy open the route, unless it has. Raises ``ProxyError``."""
        if self._job.proxy_port and self.route is None:
            proxy = ProxyControl(self._job.proxy_port)
            self.route = proxy.route(self._job.board.id, self.address[0], self.broker)
            self.address = self.route.address
