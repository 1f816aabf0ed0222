"""Whether a board with a network reaches its broker, asked of the board before any check."""

from boards.errors import RigError
from boards.repl import Repl

_CONNECT_S = 10
_DEADLINE_S = 30.0

_CONNECT = """
import socket
_address = socket.getaddrinfo({host!r}, {port})[0][-1]
_socket = socket.socket()
try:
    _socket.settimeout({seconds})
    _socket.connect(_address)
    print("reached")
except OSError as error:
    print("failed", error)
finally:
    _socket.close()
try:
    import network
    print("address", network.WLAN(network.STA_IF).ifconfig()[0])
except (ImportError, AttributeError, OSError, ValueError):
    pass
"""


class Unreachable(RigError):
    """The board does not reach its broker; the text says from where, and what to look at."""


def require_reachable(repl: Repl, broker: tuple[str, int]) -> None:
    """Have the board connect to ``broker`` and close again.

    Raises ``Unreachable``, ``ReplError``.
    """
    host, port = broker
    code = _CONNECT.format(host=host, port=port, seconds=_CONNECT_S)
    said = dict(
        line.partition(" ")[::2] for line in repl.exec(code, deadline_s=_DEADLINE_S).splitlines()
    )
    if "reached" in said:
        return
    own = f" (its own address is {said['address']})" if said.get("address") else ""
    raise Unreachable(
        f"the board does not reach its broker at {host}:{port}{own}: {said.get('failed', '')}; is "
        "it on the network of this machine, does a firewall stand between, and is [broker] bind in "
        "rig.toml the address that faces the boards?"
    )
