"""The broker's TLS: certificate, key and whose clients may come, all from files."""

import ssl

from host_broker.address import Address
from host_broker.net.connection.encrypted import use_long_reads
from host_broker.net.listening.listen_error import ListenError
from host_broker.settings import NetSettings

use_long_reads()


def has_certificate(address: Address, settings: NetSettings) -> bool:
    """Whether a certificate or a key is given for a listener that may do without."""
    given = address.options
    return bool(given.get("cert") or given.get("key") or settings.tls_cert or settings.tls_key)


def server_context(address: Address, settings: NetSettings) -> ssl.SSLContext:
    """Return the TLS side of a listener: TLS 1.2 or newer.

    The files are the address's options ``cert``, ``key`` and ``client_ca``, else the settings
    ``net.tls_cert``, ``net.tls_key`` and ``net.tls_client_ca``. With a client CA, only clients with
    a certificate of it get in. Raises ``ListenError``.
    """
    cert = address.options.get("cert", settings.tls_cert)
    key = address.options.get("key", settings.tls_key)
    client_ca = address.options.get("client_ca", settings.tls_client_ca)
    if not cert or not key:
        raise ListenError(
            f"{address} needs a certificate and its key: add '?cert=FILE&key=FILE' to it, "
            "or set net.tls_cert and net.tls_key"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _require_readable(address, cert, key, *([client_ca] if client_ca else []))
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ListenError(
            f"{address}: {cert} and {key} are no certificate and its unencrypted key in PEM form "
            f"({error})"
        ) from error
    if client_ca:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ListenError(
                f"{address}: {client_ca} holds no CA certificates in PEM form ({error})"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _require_readable(address: Address, *files: str) -> None:
    for file in files:
        try:
            with open(file, "rb"):
                pass
        except OSError as error:
            raise ListenError(f"{address}: cannot read {file}: {error.strerror}") from error


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal and wait.
    raise ValueError("the key is encrypted")
