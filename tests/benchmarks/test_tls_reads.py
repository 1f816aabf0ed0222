"""The load generator reads whole records of TLS: of a part epoll would not tell the rest."""

import select
import socket
import ssl
import threading
from pathlib import Path

from benchmarks.broker import burst, certificates

_RECORD_BYTES = 16 * 1024
_END_S = 60.0


def test_nothing_that_is_decrypted_stays_behind(tmp_path: Path) -> None:
    made = certificates.make(tmp_path)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(made.file, made.key)
    trusting = ssl.create_default_context(cafile=made.file)
    # Records of which one would not fit whole at the end of a buffer that others fill first.
    sizes = [100, *[_RECORD_BYTES] * 16]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with accepting.wrap_socket(connection, server_side=True) as server:
                for size in sizes:
                    server.sendall(bytes(size))
                server.recv(1)  # until the reader has gone

        thread = threading.Thread(target=serve)
        thread.start()
        plain = socket.create_connection(listening.getsockname(), timeout=_END_S)
        with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.settimeout(_END_S)
            client.do_handshake()
            client.setblocking(False)
            buffer = bytearray(burst._READ_BYTES)
            missing = sum(sizes)
            with select.epoll() as poll:
                poll.register(client, select.EPOLLIN)
                while missing:
                    assert poll.poll(_END_S), f"{missing} bytes are decrypted, and nobody is told"
                    missing -= max(0, burst._read(client, buffer))
                    assert not client.pending()
            client.setblocking(True)
            client.sendall(b"!")
        thread.join(_END_S)
        assert not thread.is_alive()
