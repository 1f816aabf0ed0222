"""Whether this machine lets us make a LAN, and which addresses it has."""

import socket

import pytest

from boards.virtual.lan.nic import HostNic, LanError


def require_lan() -> None:
    """Skip, loudly, where nobody can make a LAN: without root. CI refuses skips."""
    try:
        HostNic().close()
    except LanError as error:
        pytest.skip(f"NOT TESTED: {error}")


def is_here(host: str) -> bool:
    """Return whether ``host`` is an address of this machine."""
    try:
        socket.create_server((host, 0)).close()
    except OSError:
        return False
    return True
