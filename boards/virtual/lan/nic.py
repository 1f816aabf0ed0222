"""TAP devices, on this machine and in network namespaces that exist only as open descriptors.

A namespace made here has no name: it goes with the last process and descriptor in it, however they
end, and a TAP device goes with its descriptor. Linux only, and it takes root.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import random
import socket
import struct
import threading
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import TypeVar

from boards.virtual.control import BoardError

_T = TypeVar("_T")

# Of linux/if_tun.h, linux/sockios.h, linux/if.h, linux/route.h and linux/sched.h.
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_SIOCADDRT = 0x890B
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C
_SIOCSIFHWADDR = 0x8924
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_RTF_UP, _RTF_GATEWAY = 0x1, 0x2
_ARPHRD_ETHER = 1
_CLONE_NEWNET = 0x40000000

_TUN = "/dev/net/tun"
_NAMES = b"motemq%d"  # on this machine: the kernel puts the lowest number that is free
_IN_BOARD = "wlan0"
_RANGE = IPv4Network("10.213.0.0/16")
_NETWORKS = list(_RANGE.subnets(new_prefix=24))
_NEEDS = (
    "boards on a LAN of their own need root and {what}: network namespaces and TAP devices; run it "
    "as root (sudo), or without --lan, where boards use this machine's own sockets"
)


class LanError(BoardError):
    """There can be no LAN here, or it did not do what was asked."""


class HostNic:
    """This machine's place on the LAN: a TAP device with the address that faces the boards."""

    def __init__(self) -> None:
        """Make the device, with a network that nothing here uses. Raises ``LanError``."""
        self.tap, self.name = _reasoned(lambda: _open_tap(_NAMES))
        try:
            with _control_socket() as control:
                self.interface = _reasoned(lambda: self._settle(control))
        except BaseException:
            self.close()
            raise

    @property
    def network(self) -> IPv4Network:
        """The LAN."""
        return self.interface.network

    def close(self) -> None:
        """Take the device away, and with it its address and route."""
        os.close(self.tap)

    def _settle(self, control: socket.socket) -> IPv4Interface:
        # By chance, and not the lowest that is free: connections of the LAN before this one may be
        # dying still, and what they say would reach boards that have the addresses now.
        for network in random.sample(_NETWORKS, len(_NETWORKS)):
            if any(network.overlaps(route) for _, route in _routes()):
                continue
            interface = IPv4Interface((network[1], network.prefixlen))
            _configure(control, self.name, interface)
            others = [name for name, route in _routes() if network.overlaps(route)]
            if others == [self.name]:
                return interface
            # Somebody else took it just now.
            _configure(control, self.name, IPv4Interface("0.0.0.0"))
        raise LanError(
            f"no free network for virtual boards in {_NETWORKS[0].supernet(new_prefix=16)}"
        )


class BoardNic:
    """A board's namespace with one device, ``wlan0``, which has no address yet.

    ``namespace`` and ``tap`` are descriptors; the one of the device belongs to whoever carries its
    frames.
    """

    def __init__(self, mac: bytes) -> None:
        """Make both. Raises ``LanError``."""
        self.namespace, self.tap, self._control = _reasoned(lambda: _in_thread(lambda: _make(mac)))

    def configure(self, interface: IPv4Interface, gateway: IPv4Address) -> None:
        """Give the device its address, and a way to everything else. Raises ``LanError``."""
        _reasoned(lambda: _configure(self._control, _IN_BOARD, interface, gateway))

    def unconfigure(self) -> None:
        """Take the address away again; connections that use it hang."""
        _reasoned(lambda: _configure(self._control, _IN_BOARD, IPv4Interface("0.0.0.0")))

    def enter(self) -> None:
        """Move the calling thread in; for a new process, between fork and exec."""
        _setns(self.namespace)

    def close(self) -> None:
        """Let go of it: it is gone once no process is in it and nobody else has its device."""
        os.close(self.namespace)
        os.close(self.tap)
        self._control.close()


def _make(mac: bytes) -> tuple[int, int, socket.socket]:
    """Make a namespace with this thread in it, its devices, and a socket that belongs to it."""
    _call(_LIBC.unshare(_CLONE_NEWNET))
    with contextlib.ExitStack() as undo:
        own = f"/proc/self/task/{threading.get_native_id()}/ns/net"
        namespace = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, namespace)
        tap, _ = _open_tap(_IN_BOARD.encode())
        undo.callback(os.close, tap)
        control = undo.enter_context(_control_socket())
        # A chip that has lost its power resends nothing: what its sockets leave behind ends soon.
        _set("ipv4/tcp_orphan_retries", "1")
        for where in ("all", "default"):
            _set(f"ipv6/conf/{where}/disable_ipv6", "1")
        hardware = struct.pack("16sH6s8x", _IN_BOARD.encode(), _ARPHRD_ETHER, mac)
        fcntl.ioctl(control, _SIOCSIFHWADDR, hardware)
        for name in ("lo", _IN_BOARD):
            _set_up(control, name)
        undo.pop_all()
        return namespace, tap, control


def _set(setting: str, value: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        Path("/proc/sys/net", setting).write_text(value)


def _open_tap(name: bytes) -> tuple[int, str]:
    tap = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name, _IFF_TAP | _IFF_NO_PI)
        answer = fcntl.ioctl(tap, _TUNSETIFF, request)
    except BaseException:
        os.close(tap)
        raise
    return tap, answer[:16].rstrip(b"\0").decode()


def _control_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _configure(
    control: socket.socket,
    name: str,
    interface: IPv4Interface,
    gateway: IPv4Address | None = None,
) -> None:
    fcntl.ioctl(control, _SIOCSIFADDR, _request(name, interface.ip))
    if interface.ip.is_unspecified:
        return
    fcntl.ioctl(control, _SIOCSIFNETMASK, _request(name, interface.netmask))
    _set_up(control, name)
    if gateway is not None:
        route = struct.pack(
            "P16s16s16sH6xP4xP4x16x",
            0,
            _address(IPv4Address(0)),
            _address(gateway),
            _address(IPv4Address(0)),
            _RTF_UP | _RTF_GATEWAY,
            0,
            0,
        )
        with contextlib.suppress(FileExistsError):
            fcntl.ioctl(control, _SIOCADDRT, route)


def _set_up(control: socket.socket, name: str) -> None:
    flags = struct.pack("16sH22x", name.encode(), _IFF_UP | _IFF_RUNNING)
    fcntl.ioctl(control, _SIOCSIFFLAGS, flags)


def _request(name: str, address: IPv4Address) -> bytes:
    return struct.pack("16s16s8x", name.encode(), _address(address))


def _address(address: IPv4Address) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, address.packed)


def _routes() -> list[tuple[str, IPv4Network]]:
    """Return the networks that this machine has a way to, and by which device."""
    found = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        if mask:  # the default route leads everywhere
            found.append((fields[0], IPv4Network((address, mask.bit_count()))))
    return found


_LIBC = ctypes.CDLL(None, use_errno=True)  # os.unshare and os.setns came with Python 3.12


def _call(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _setns(namespace: int) -> None:
    _call(_LIBC.setns(namespace, _CLONE_NEWNET))


def _in_thread(what: Callable[[], _T]) -> _T:
    """Do it in a thread of its own: a namespace is entered by the thread and never left."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(what())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _reasoned(what: Callable[[], _T]) -> _T:
    """Do it, and say what is needed where this machine does not let us."""
    try:
        return what()
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise LanError(_NEEDS.format(what=_TUN)) from None
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
            raise LanError(
                _NEEDS.format(what=f"{_TUN}, which is not here (in a container: --device {_TUN})")
            ) from None
        raise LanError(f"a network device for a virtual board: {error}") from None
