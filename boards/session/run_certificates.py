"""The certificates of one run: its broker proves by one that it is the run's, each board by another
that it belongs to the run. Whoever signed both is known to nobody else and gone after the run.
"""

import base64
import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from boards.runtime_folder import write_private
from host_broker.scratch_folder import scratch_folder

BROKER_NAME = "broker.of.this.run"  # what a board expects, at whatever address it finds it
# Boards without a clock live in 2000, or in 1970 with a wrong epoch. What limits these certificates
# is that their authority's key is never written down.
_FROM = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(2049, 12, 31, tzinfo=datetime.UTC)
_PEM, _DER = serialization.Encoding.PEM, serialization.Encoding.DER
_PLAIN = serialization.NoEncryption()


class RunCertificates:
    """The files in ``folder``, as ``run_certificates`` made them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def listen_options(self) -> str:
        """Return what makes a ``--listen`` address of a broker take boards of the run only."""
        return (
            f"?cert={self.folder}/broker.pem&key={self.folder}/broker.key"
            f"&client_ca={self.folder}/ca.pem"
        )

    def of_board(self) -> Mapping[str, str]:
        """Return ``tls`` of node.json: see docs/node.md."""
        files = {"ca": "ca.der", "cert": "board.der", "key": "board.key.der"}
        texts = {
            name: base64.b64encode((self.folder / file).read_bytes()).decode()
            for name, file in files.items()
        }
        return {"name": BROKER_NAME, **texts}


@contextmanager
def run_certificates() -> Iterator[RunCertificates]:
    """Make them in a folder that only we may read, and that ends with the block."""
    with scratch_folder("motemq-run-") as folder:
        authority = _Authority()
        write_private(folder / "ca.pem", authority.certificate.public_bytes(_PEM))
        write_private(folder / "ca.der", authority.certificate.public_bytes(_DER))
        certificate, key = authority.issue(BROKER_NAME, ExtendedKeyUsageOID.SERVER_AUTH)
        write_private(folder / "broker.pem", certificate.public_bytes(_PEM))
        pkcs8 = serialization.PrivateFormat.PKCS8
        write_private(folder / "broker.key", key.private_bytes(_PEM, pkcs8, _PLAIN))
        certificate, key = authority.issue("board.of.this.run", ExtendedKeyUsageOID.CLIENT_AUTH)
        write_private(folder / "board.der", certificate.public_bytes(_DER))
        sec1 = serialization.PrivateFormat.TraditionalOpenSSL
        write_private(folder / "board.key.der", key.private_bytes(_DER, sec1, _PLAIN))
        yield RunCertificates(folder)


class _Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority.of.this.run")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.certificate = (
            self._begin(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self, name: str, purpose: x509.ObjectIdentifier
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._begin(subject, key)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate, key

    def _begin(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_FROM)
            .not_valid_after(_UNTIL)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )
