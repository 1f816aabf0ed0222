"""Whether a board with a network reaches its broker, asked of the board before any check."""

from boards.errors import RigError
from boards.repl import Repl

_CONNECT_S = 10
_DEADLINE_S = 30.0
_SPEAK_S = 30.0  # a handshake takes a board without an accelerator some seconds

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


# The client as the checks use it: who speaks TLS there, and may this board?
_SPEAK = """
import node
try:
    _config = node.load()
    node.Connection(_config, _config["board"] + ".check", {ms}).client.close()
    print("reached")
except (OSError, ImportError, ValueError, MemoryError) as error:
    print("failed", repr(error) if not error.args else ": ".join([str(one) for one in error.args]))
"""


class Unreachable(RigError):
    """The board does not reach its broker; the text says from where, and what to look at."""


def require_reachable(repl: Repl, broker: tuple[str, int], *, tls: bool = False) -> None:
    """Have the board connect to ``broker`` and close again.

    ``tls``: then also as node.json says, with a round trip by the board's protocol. Raises
    ``Unreachable``, ``ReplError``.
    """
    host, port = broker
    code = _CONNECT.format(host=host, port=port, seconds=_CONNECT_S)
    said = dict(
        line.partition(" ")[::2] for line in repl.exec(code, deadline_s=_DEADLINE_S).splitlines()
    )
    if "reached" in said:
        if tls:
            _require_spoken(repl, broker)
        return
    own = f" (its own address is {said['address']})" if said.get("address") else ""
    raise Unreachable(
        f"the board does not reach its broker at {host}:{port}{own}: {said.get('failed', '')}; is "
        "it on the network of this machine, does a firewall stand between, and is [broker] bind in "
        "rig.toml the address that faces the boards?"
    )


def _require_spoken(repl: Repl, broker: tuple[str, int]) -> None:
    code = _SPEAK.format(ms=int(_SPEAK_S * 1e3))
    said = repl.exec(code, deadline_s=_SPEAK_S + _DEADLINE_S).splitlines()
    if said[-1:] != ["reached"]:
        why = said[-1].removeprefix("failed ") if said else "it says nothing"
        raise Unreachable(
            f"the board reaches its broker at {broker[0]}:{broker[1]}, but not by TLS: {why}; if "
            "its firmware has no TLS, or no memory for it, write tls = false under [broker] in "
            "rig.toml: then everybody on that network can speak to the run's broker"
        )
