"""The brokers that are compared: how each is started, and stopped whatever happens."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.broker import certificates, wires
from benchmarks.broker.certificates import Certificate
from benchmarks.ports import port_for_later

_START_S = 20.0
_PR_SET_PDEATHSIG = 1
_PURE = "MOTEMQ_PURE_PYTHON"  # any value: our broker does without its compiled code
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Peer:
    """One broker: its program, its command line, its wire language.

    ``argv`` is given a port, a folder for its files, and a certificate if it shall speak TLS.
    """

    name: str
    program: str
    package: str  # the Debian package, "" for ours
    argv: Callable[[int, Path, Certificate | None], list[str]]
    wire: wires.Wire  # of publishers
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)  # besides ours
    subscriber_wire: wires.Wire | None = None  # None = that of publishers
    heading: str = ""  # of its column, if that is not its name

    @property
    def column(self) -> str:
        """The heading of its column in a table; no two of a workload have the same."""
        return self.heading or self.name

    @property
    def hearing(self) -> wires.Wire:
        """The wire language of subscribers."""
        return self.subscriber_wire or self.wire


@dataclass(frozen=True, slots=True)
class Running:
    """A started broker."""

    port: int
    pid: int
    certificate: Path | None = None  # PEM; None = it does not speak TLS


class PeerFailed(Exception):
    """A broker did not start, lost messages, or hung up; the text says which and how."""


def _motemq_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    address = f"fmqp://127.0.0.1:{port}"
    if tls is not None:
        address = f"fmqps://127.0.0.1:{port}?cert={tls.file}&key={tls.key}"
    return [sys.executable, "-m", "motemq", "broker", "--listen", address, "--ephemeral"]


def _auto_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    return [word.replace("fmqp", "auto") for word in _motemq_argv(port, folder, tls)]


def _journal_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    return [*_motemq_argv(port, folder, tls)[:-1], "--data", str(folder / "data")]


def _acl_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    """Publishers and subscribers are one user, whose topics 1,000 rules are about."""
    users, rules = folder / "users.toml", folder / "rules.toml"
    users.touch(0o600)
    roles = [f"area{number}" for number in range(10)]
    lines = ["[principals.bench]", 'connect = ["**"]', 'subscribe = ["**"]', f"roles = {roles}"]
    for number, role in enumerate(roles):
        patterns = [f"area{number}/*/{place}/**" for place in range(80)]
        denied = [f"area{number}/*/{place}/secret/**" for place in range(19)]
        lines += [f"[roles.{role}]", f"publish = {[*patterns, '**']}", f"deny.publish = {denied}"]
    rules.write_text("\n".join(lines) + "\n")
    listen, address, *rest = _motemq_argv(port, folder, tls)[-3:]
    files = [f"access.users={users}", f"access.rules={rules}"]
    return [
        *_motemq_argv(port, folder, tls)[:-3],
        *(listen, f"{address}?principal=bench", *rest),
        *(word for file in files for word in ("--set", file)),
    ]


def _mosquitto_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    config = folder / "mosquitto.conf"
    # No limit to its queues, so that QoS 0 messages are delayed and not dropped.
    lines = [
        f"listener {port} 127.0.0.1",
        *([f"certfile {tls.file}", f"keyfile {tls.key}"] if tls is not None else []),
        "allow_anonymous true",
        "set_tcp_nodelay true",
        "max_queued_messages 0",
        "max_connections -1",
        "log_type none",
        "user root",  # else it would drop its rights and could not read its key
    ]
    config.write_text("\n".join(lines) + "\n")
    return ["mosquitto", "-c", str(config)]


def _nats_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    config = folder / "nats.conf"
    # More pending bytes than any workload has under way: it disconnects who is slower than that.
    text = f'listen: "127.0.0.1:{port}"\nmax_pending: 1GB\n'
    if tls is not None:
        text += f'tls {{ cert_file: "{tls.file}", key_file: "{tls.key}" }}\n'
    config.write_text(text)
    return ["nats-server", "-c", str(config), "-l", str(folder / "nats.log")]


def _relay_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    files = [str(tls.file), str(tls.key)] if tls is not None else []
    return [sys.executable, "-m", "benchmarks.broker.relay", str(port), *files]


def _written_relay_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    return [*_relay_argv(port, folder, None), str(folder / "relayed")]


def _bare_loop_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    if tls is not None:
        raise PeerFailed("the bare loop does not speak TLS")
    return [sys.executable, "-m", "benchmarks.broker.bare_loop", str(port)]


def _pure(peer: Peer) -> Peer:
    """Return the peer without compiled code."""
    return replace(
        peer,
        name=f"{peer.name}, pure Python",
        heading=f"{peer.column}, pure Python",
        environment={_PURE: "1"},
    )


MOTEMQ = Peer("motemq", sys.executable, "", _motemq_argv, wires.FMQP)
PURE = _pure(MOTEMQ)
ACL = replace(MOTEMQ, name="motemq, 1,000 rules", argv=_acl_argv)
JOURNAL = replace(MOTEMQ, name="motemq, --data", argv=_journal_argv)
# These two differ in nothing but the listener.
GREETED = replace(MOTEMQ, name="motemq, fmqp://", heading="motemq", wire=wires.FMQP_GREETING)
AUTO = replace(GREETED, name="motemq, auto://", heading="", argv=_auto_argv)
FMQP_TO_LIGHTMQ = replace(
    AUTO,
    name="motemq, FMQP→LightMQ",
    heading="motemq",
    subscriber_wire=wires.LIGHTMQ_SUBSCRIBER,
)
LIGHTMQ_TO_FMQP = replace(
    AUTO,
    name="motemq, LightMQ→FMQP",
    heading="motemq",
    wire=wires.LIGHTMQ,
    subscriber_wire=wires.FMQP,
)
MOSQUITTO = Peer("mosquitto", "mosquitto", "mosquitto", _mosquitto_argv, wires.MQTT)
NATS = Peer("nats-server", "nats-server", "nats-server", _nats_argv, wires.NATS)
RELAY = Peer("byte relay", sys.executable, "", _relay_argv, wires.RELAY)
WRITTEN_RELAY = replace(RELAY, name="byte relay, written", argv=_written_relay_argv)
BARE_LOOP = Peer("bare loop", sys.executable, "", _bare_loop_argv, wires.RELAY)
BY_NAME = {
    peer.name: peer
    for peer in (
        *(MOTEMQ, PURE, ACL, JOURNAL, GREETED, AUTO),
        *(FMQP_TO_LIGHTMQ, _pure(FMQP_TO_LIGHTMQ), LIGHTMQ_TO_FMQP, _pure(LIGHTMQ_TO_FMQP)),
        *(NATS, MOSQUITTO, RELAY, WRITTEN_RELAY),
    )
}


def installed(peer: Peer) -> bool:
    """Tell whether the peer's program is on this machine."""
    return shutil.which(peer.program) is not None


def _environment() -> dict[str, str]:
    """Return ours, without what would make all of our brokers the same."""
    return {name: value for name, value in os.environ.items() if name != _PURE}


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def running(peer: Peer, tls: bool = False) -> Iterator[Running]:
    """Run the peer on a free loopback port while the block lasts, with TLS or without.

    It ends with this process, even if that is killed. Raises ``PeerFailed`` if it does not accept
    connections within 20 s.
    """
    port = port_for_later()
    with tempfile.TemporaryDirectory(prefix="motemq-bench-") as folder:
        log = Path(folder) / "stderr"
        certificate = certificates.make(Path(folder)) if tls else None
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                peer.argv(port, Path(folder), certificate),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**_environment(), **peer.environment},
                preexec_fn=_die_with_parent,
            )
        try:
            _wait_until_accepting(peer, process, port, log)
            yield Running(port, process.pid, certificate.file if certificate else None)
        finally:
            process.terminate()
            try:
                process.wait(_START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_accepting(
    peer: Peer, process: subprocess.Popen[bytes], port: int, log: Path
) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)  # a poll of another program's start, bounded by `end`
    said = log.read_text(errors="replace").strip().rpartition("\n")[2] or "it said nothing"
    raise PeerFailed(f"{peer.name} did not accept connections within {_START_S:.0f} s: {said}")
