"""A private certificate authority: for the broker a certificate, for each board and user one.

All are PEM files with keys on the curve P-256; of boards also DER, which needs less of their memory
to be read. Keys are readable by their owner only, and nothing that is there is replaced.
"""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from host_broker.net.access.access_error import AccessError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA, CA_KEY = "ca.pem", "ca-key.pem"
SERVER, SERVER_KEY = "server.pem", "server-key.pem"
_AUTHORITY_DAYS = 3650
_BACK = datetime.timedelta(minutes=5)  # for clocks that are behind


def make_authority(folder: Path, hosts: list[str], days: int) -> list[Path]:
    """Make a CA and the broker's certificate for ``hosts`` (names and addresses); return the files.

    Raises ``AccessError``.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("MoteMQ private CA")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = (
        _begun(name, name, key, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AccessError(f"cannot make {folder}: {error.strerror}") from error
    for file in (CA, CA_KEY, SERVER, SERVER_KEY):
        if (folder / file).exists():
            raise AccessError(f"{folder / file} is there already; choose another folder")
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _signed(authority, key, server_key, hosts[0], days, hosts=hosts)
    _write(folder / CA, _pem(authority), private=False)
    _write(folder / CA_KEY, _key_bytes(key), private=True)
    _write(folder / SERVER, _pem(server), private=False)
    _write(folder / SERVER_KEY, _key_bytes(server_key), private=True)
    return [folder / file for file in (CA, CA_KEY, SERVER, SERVER_KEY)]


def make_client(folder: Path, name: str, days: int) -> list[Path]:
    """Make a certificate for the user or board ``name`` by the CA in ``folder``; return the files.

    Raises ``AccessError``.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        authority = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except OSError as error:
        raise AccessError(
            f"cannot read {error.filename}: {error.strerror}; 'motemq certs init' makes a CA"
        ) from error
    except (ValueError, TypeError) as error:
        raise AccessError(f"{folder} has no CA made by 'motemq certs init': {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AccessError(f"{folder / CA_KEY} is no key made by 'motemq certs init'")
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(authority, key, own, name, days)
    base = folder / name
    files = [base.with_name(f"{name}{end}") for end in (".pem", "-key.pem", ".der", "-key.der")]
    for file in files:
        if file.exists():
            raise AccessError(f"{file} is there already; move it away first")
    _write(files[0], _pem(certificate), private=False)
    _write(files[1], _key_bytes(own), private=True)
    _write(files[2], certificate.public_bytes(serialization.Encoding.DER), private=False)
    _write(files[3], _key_bytes(own, der=True), private=True)
    return files


def _signed(
    authority: "x509.Certificate",
    authority_key: "EllipticCurvePrivateKey",
    key: "EllipticCurvePrivateKey",
    name: str,
    days: int,
    hosts: list[str] | None = None,
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    use = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    begun = (
        _begun(_name(name), authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(issuer, critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        begun = begun.add_extension(names, critical=False)
    return begun.sign(authority_key, hashes.SHA256())


def _begun(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(own, critical=False)
    )


def _name(text: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError as error:
        raise AccessError(f"{text!r} cannot be the name in a certificate: {error}") from error


def _host(text: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError as error:
        raise AccessError(f"{text!r} is no host: {error}") from error


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_bytes(key: "EllipticCurvePrivateKey", *, der: bool = False) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.DER if der else serialization.Encoding.PEM,
        # What MicroPython's mbedtls reads, too.
        serialization.PrivateFormat.TraditionalOpenSSL
        if der
        else serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(file: Path, data: bytes, *, private: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(file, flags, 0o600 if private else 0o644)
        with os.fdopen(handle, "wb") as written:
            written.write(data)
    except OSError as error:
        raise AccessError(f"cannot write {file}: {error.strerror}") from error
