"""A certificate authority for one test, and certificates of it, as PEM files."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            self._begin(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, host: str = "127.0.0.1", days: int = 1, stem: str = ""
    ) -> tuple[Path, Path]:
        """Return the files of a certificate for ``host`` and of its key, which are called ``stem``,
        or as it is.

        It is valid for ``days`` from now on; of less than 0, it was until then.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            here: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            here = x509.DNSName(host)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._begin(subject, key, days)
            .add_extension(x509.SubjectAlternativeName([here]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = stem or name
        files = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def _begin(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=max(0, -days), minutes=5))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(own, critical=False)
        )
