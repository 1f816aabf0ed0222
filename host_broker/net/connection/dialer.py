"""Connections that the broker makes itself, to other brokers (``ExtraOutputs.outgoing``)."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from host_broker.net.connection.poller import Poller
from host_broker.net.connection.stream import Stream
from host_broker.outputs import Outgoing


class Dialer:
    """Connects by TCP; each address of a host's name is tried, one after the other.

    ``protocol`` makes what reads a connection that is there; ``not_reached`` is told of one that
    is not, with why.
    """

    def __init__(
        self,
        poller: Poller,
        protocol: Callable[[Outgoing], asyncio.Protocol],
        not_reached: Callable[[Outgoing, str], None],
    ) -> None:
        self._poller = poller
        self._protocol = protocol
        self._not_reached = not_reached
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def dial(self, outgoing: Outgoing) -> None:
        """Begin to connect; nothing once it is closed."""
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._dial(outgoing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Give up what is not connected yet, and connect no more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def _dial(self, outgoing: Outgoing) -> None:
        try:
            async with asyncio.timeout(outgoing.timeout_s):
                context = None if outgoing.tls is None else _context(outgoing.tls)
                sock = await _connected(outgoing.host, outgoing.port)
                loop = asyncio.get_running_loop()
                if context is None:
                    Stream(sock, self._protocol(outgoing), self._poller, loop).start()
                    return
                await loop.create_connection(
                    lambda: self._protocol(outgoing),
                    ssl=context,
                    sock=sock,
                    server_hostname=outgoing.host,
                )
        except TimeoutError:
            self._not_reached(outgoing, f"it did not answer within {outgoing.timeout_s:g} s")
        except ssl.SSLCertVerificationError as error:
            self._not_reached(outgoing, f"its certificate is not accepted: {error.verify_message}")
        except ssl.SSLError as error:
            self._not_reached(outgoing, f"no TLS with it: {error.reason or error}")
        except (OSError, UnicodeError, ValueError) as error:
            self._not_reached(outgoing, getattr(error, "strerror", None) or str(error))


def _context(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities or None)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"cannot read its authorities in {authorities}: {reason}") from error


async def _connected(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise last
