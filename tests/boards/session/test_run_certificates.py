"""The run's own broker, by TLS: nobody but the run's boards is let in, and its keys go with it."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from boards.session.broker_process import BrokerProcess
from boards.session.run_certificates import BROKER_NAME, RunCertificates, run_certificates
from host_broker.client import connect

_S = 30.0


@pytest.fixture(scope="module")
def certificates() -> Iterator[RunCertificates]:
    with run_certificates() as made:
        yield made


@pytest.fixture(scope="module")
def broker(
    certificates: RunCertificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    log = tmp_path_factory.mktemp("broker") / "log"
    process = BrokerProcess("127.0.0.1", log, None, certificates)
    process.start()
    yield process
    process.kill()


def _board_context(certificates: RunCertificates, folder: Path) -> ssl.SSLContext:
    """What a board trusts and says, in the form that this Python reads."""
    pem = folder / "board.pem"
    files = certificates.folder
    certificate = x509.load_der_x509_certificate((files / "board.der").read_bytes())
    key = serialization.load_der_private_key((files / "board.key.der").read_bytes(), None)
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(cafile=files / "ca.pem")
    context.load_cert_chain(pem)
    return context


def _dial(broker: BrokerProcess, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    host, _, port = broker.facing["lightmq"].rpartition(":")
    return context.wrap_socket(
        socket.create_connection((host, int(port)), _S), server_hostname=name
    )


def test_only_we_can_read_them_and_they_end_with_the_run() -> None:
    with run_certificates() as made:
        assert made.folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in made.folder.iterdir()} == {0o600}
        assert not any(b"PRIVATE" in path.read_bytes() for path in made.folder.glob("ca.*"))
    assert not made.folder.exists()


def test_a_board_of_the_run_speaks_and_we_do_without(
    broker: BrokerProcess, certificates: RunCertificates, tmp_path: Path
) -> None:
    with (
        connect(f"fmqp://{broker.addresses['fmqp']}") as host,
        _dial(broker, _board_context(certificates, tmp_path), BROKER_NAME) as board,
    ):
        host.subscribe("lightmq/kitchen/status", confirm=True)
        board.sendall(b"\x01\x00\x08\x07kitchen")
        message = host.receive(_S)
        assert message is not None and message.payload == b"online"


def test_who_has_no_certificate_of_the_run_is_not_let_in(
    broker: BrokerProcess, certificates: RunCertificates
) -> None:
    context = ssl.create_default_context(cafile=certificates.folder / "ca.pem")
    with pytest.raises((ssl.SSLError, ConnectionError)):  # noqa: SIM117 - by the first word at last
        with _dial(broker, context, BROKER_NAME) as stranger:
            stranger.sendall(b"\x01\x00\x08\x07kitchen")
            if not stranger.recv(1):
                raise ConnectionError("closed")


def test_a_board_trusts_no_other_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    with run_certificates() as others:
        context = _board_context(others, tmp_path)
        with pytest.raises(ssl.SSLCertVerificationError):
            _dial(broker, context, BROKER_NAME)


def test_a_board_without_a_clock_believes_them(certificates: RunCertificates) -> None:
    """Its year is 2000, or 1970."""
    for path in (certificates.folder / "ca.pem", certificates.folder / "broker.pem"):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        assert certificate.not_valid_before_utc.year == 1970
        assert certificate.not_valid_after_utc.year == 2049
