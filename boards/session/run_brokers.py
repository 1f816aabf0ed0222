"""The broker of a run: one that a person named, or the run's own, where the boards can reach it."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from boards.faults.process import can_stand_at
from boards.inventory.rig_file import RIG_FILE, Rig
from boards.session.broker_process import BrokerDown, BrokerProcess
from boards.session.plan import BoardPlan, PlanError, Protocol
from boards.session.run_certificates import RunCertificates, run_certificates
from host_broker.address import AddressError, parse_address
from host_broker.client import ClientError, connect

_PROBE_S = 10.0
_ELSEWHERE = ("192.0.2.1", 9)  # TEST-NET-1: nobody is there, and nothing is sent
_PROBE = "rig-probe"  # the probe's ClientID


@dataclass(frozen=True, slots=True)
class RunBrokers:
    """Where the broker is, HOST:PORT by protocol.

    With ``certificates`` that is for us and for boards on this machine; a board on a network finds
    it by TLS, where ``facing`` says.
    """

    fmqp: str
    lightmq: str
    facing: Mapping[str, str] = field(default_factory=dict)
    certificates: RunCertificates | None = None


def broker_address(text: str, protocol: Protocol) -> str:
    """Return HOST:PORT of that, or of a URL like ``fmqp://HOST:PORT``.

    ValueError with what is wrong: nothing but these, and no TLS, which boards of a run do not
    speak.
    """
    host_and_port = text
    if "://" in text:
        url = urlsplit(text)
        if url.scheme not in (protocol, "auto") or url.path or url.query or url.fragment:
            raise ValueError(f"{text!r} is not {protocol}://HOST:PORT")
        host_and_port = url.netloc
    host, _, port = host_and_port.rpartition(":")
    if not host or "@" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST:PORT, e.g. 127.0.0.1:8765")
    try:
        parse_address(f"fmqp://{host_and_port}")
    except AddressError as error:
        raise ValueError(f"{text!r} is not HOST:PORT: {error}") from None
    return host_and_port


def host_and_number(address: str) -> tuple[str, int]:
    """Return the host, of IPv6 without its brackets, and the port of HOST:PORT."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def named(brokers: RunBrokers, protocols: Sequence[Protocol]) -> RunBrokers:
    """Return ``brokers`` after they have answered in ``protocols``; raises ``BrokerDown``."""
    for protocol in protocols:
        address = getattr(brokers, protocol)
        url = f"{protocol}://{address}" + (f"/{_PROBE}" if protocol == "lightmq" else "")
        try:
            with connect(url, timeout_s=_PROBE_S) as client:
                client.ping()
        except ClientError as error:
            raise BrokerDown(f"there is no broker to run against: {error}") from None
    return brokers


@contextmanager
def own(host: str, log: Path, *, tls: bool = False) -> Iterator[RunBrokers]:
    """Start a broker on ``host`` for the block; ``tls``: for boards of this run only, by TLS.

    Raises ``BrokerDown``.
    """
    if not can_stand_at(host):
        raise BrokerDown(
            f"no broker can listen at {host}: it is no address of this machine; [broker] bind in "
            f"{RIG_FILE} says where, and left out it is found out"
        )
    with ExitStack() as stack:
        certificates = stack.enter_context(run_certificates()) if tls else None
        process = BrokerProcess(host, log, None, certificates)
        process.start()
        stack.callback(process.kill)
        yield RunBrokers(
            process.addresses["fmqp"], process.addresses["lightmq"], process.facing, certificates
        )


def facing(plans: Sequence[BoardPlan], rig: Rig | None) -> str:
    """Return the address of this machine that all these boards reach; ``[broker] bind`` says it.

    Boards on a serial line have a bridge on this machine, and virtual ones share its network unless
    they are on a LAN of their own. Raises ``PlanError`` if there is no such address.
    """
    if rig is not None and rig.bind:
        return rig.bind
    hosts = {faced_by(plan, rig) for plan in plans} - {""}
    if len(hosts) > 1:
        raise PlanError(
            f"these boards reach this machine by different addresses, {' and '.join(sorted(hosts))}"
            f"; run them apart (--board), or say which one in {rig.file if rig else RIG_FILE}: "
            '[broker] bind = "ADDRESS"'
        )
    return hosts.pop() if hosts else "127.0.0.1"


def is_open_to_others(host: str) -> bool:
    """Whether programs on other machines can connect to this address of ours."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:  # a name
        return host != "localhost"


def open_broker(host: str) -> str:
    """Return the warning about a broker of our own without TLS at an address like that."""
    return (
        f"the broker of this run listens on {host} without TLS, open to everybody on that network"
    )


def faced_by(plan: BoardPlan, rig: Rig | None) -> str:
    """Return our address that a board on a network reaches, "" for one that is on this machine.

    Raises ``PlanError`` if this machine is on no network.
    """
    if not plan.file or rig is None or "network" not in plan.has:
        return ""
    board = rig.board(plan.id)
    if board.virtual is not None or board.model.id == "unix":
        return board.virtual.host if board.virtual is not None else ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError as error:
            raise PlanError(
                f"{plan.id} reaches its broker by network, and this machine has none "
                f"({error.strerror}); join the boards' network, or name a broker (--fmqp HOST:PORT)"
            ) from None
        return str(probe.getsockname()[0])
