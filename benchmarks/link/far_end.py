"""What the bridge connects to in place of a broker: takes or gives a known pattern, checks it."""

import socket
import threading

CHUNK = bytes(range(251)) * 4  # as device/pour.py
_LIFE_S = 120.0


class FarEnd:
    """Context manager; serves one connection after the other. ``wrong``: what was not as sent."""

    def __init__(self, count: int) -> None:
        self.wrong: list[str] = []
        self._count = count // len(CHUNK)  # chunks
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> "FarEnd":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return  # closed: the end
            with peer:
                peer.settimeout(_LIFE_S)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    self._serve(peer)
                except OSError as error:
                    self.wrong.append(f"the connection ended: {error}")

    def _serve(self, peer: socket.socket) -> None:
        direction = b"?"
        while direction not in (b"u", b"d"):  # raw mode opens a session for any stray byte
            direction = peer.recv(1)
            if not direction:
                return
        peer.sendall(b"+")
        if direction == b"u":
            for _ in range(self._count):
                if self._exactly(peer, len(CHUNK)) != CHUNK:
                    self.wrong.append("other bytes than were sent")
                    return
            peer.sendall(b"+")
        else:
            self._exactly(peer, 1)
            for _ in range(self._count):
                peer.sendall(CHUNK)
        if self._exactly(peer, 1) != b".":
            self.wrong.append("more bytes than were sent")
        peer.sendall(b"+")
        while peer.recv(4096):
            continue

    def _exactly(self, peer: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = peer.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"{len(data)} of {count} bytes")
            data += piece
        return data
