"""How a board finds its broker: straight, or through the fault proxy, which may lead elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boards.faults.control import ProxyControl, Route
from boards.session.broker_process import QUICK, BrokerProcess, BrokerTiming
from boards.session.plan import Job
from boards.session.run_brokers import host_and_number
from boards.session.run_certificates import RunCertificates


class BrokerRoute:
    """The way of one board to the run's broker.

    ``broker`` is that of the board's protocol, HOST:PORT; ``address`` is where the board, or its
    bridge, connects; ``certificates`` are for TLS, if that is how. ``route`` is None where no proxy
    can stand.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.broker = job.facing or (job.fmqp if job.board.protocol == "fmqp" else job.lightmq)
        self.certificates = RunCertificates(Path(job.tls_dir)) if job.tls_dir else None
        self.address = host_and_number(self.broker)
        self.route: Route | None = None
        self._own: dict[str, BrokerProcess] = {}

    def open(self) -> None:
        """Have the proxy open the route, unless it has. Raises ``ProxyError``."""
        if self._job.proxy_port and self.route is None:
            proxy = ProxyControl(self._job.proxy_port)
            self.route = proxy.route(self._job.board.id, self.address[0], self.broker)
            self.address = self.route.address

    def close(self) -> None:
        """End what the rig started for this board alone."""
        for own in self._own.values():
            own.kill()

    def own_broker(self, timing: BrokerTiming = QUICK) -> BrokerProcess:
        """Return the rig's own broker, started at its first use. Raises ``BrokerDown``."""
        own = self._own.get(timing.name)
        if own is None:
            host, _ = host_and_number(self.broker)
            log = Path(self._job.log_dir) / f"{self._job.board.id}.{timing.name}-broker.log"
            own = self._own[timing.name] = BrokerProcess(host, log, timing, self.certificates)
        if not own.addresses or own.ended:
            own.start()
        return own

    @property
    def ended_broker(self) -> str:
        """What to say of a broker of the rig's own that has ended by itself, "" if none has."""
        ended = (own.ended for own in self._own.values())
        return next((f"the rig's own broker is gone: {each}" for each in ended if each), "")

    @contextmanager
    def disturbed(self, route: Route, to: str = "") -> Iterator[Route]:
        """Lead ``route`` to ``to`` for the block, whatever is done to it there.

        ``to``: HOST:PORT, "" for the run's broker. Afterwards no connection is left, and it leads
        to the run's broker as before. Raises ``ProxyError``.
        """
        route.lead_to(to or self.broker)
        try:
            yield route
        finally:
            route.set_mode("forward")
            route.cut("rst")
            route.lead_to(self.broker)
