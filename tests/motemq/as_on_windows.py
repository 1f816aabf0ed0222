"""Run ``motemq`` with what Python has on Windows only: a script, its arguments are the command's.

What is not ours has been imported before, as it would want the rest of Windows; our modules are
then read anew. A serial port has no descriptor there, and a pair of sockets is of TCP.
"""

import importlib
import io
import os
import select
import signal
import socket
import sys

import serial

OURS = ("motemq", "host_broker", "boards", "firmware")
CLIENTS = ("pub", "sub", "ping", "call")
UNIX_MODULES = ("fcntl", "termios", "tty", "pty", "pwd", "grp", "resource")
UNIX_NAMES = {
    select: ("poll", "epoll", "POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLNVAL", "POLLRDHUP"),
    os: (
        *("getuid", "geteuid", "getgid", "getegid", "openpty", "set_blocking", "fchmod", "fork"),
        *("killpg", "setsid", "mkfifo", "O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY"),
        "register_at_fork",
    ),
    signal: ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGPIPE", "pidfd_send_signal"),
    socket: ("AF_UNIX", "TCP_USER_TIMEOUT"),
}


def _tcp_pair(*_arguments: int) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


def no_descriptor(_port: object) -> int:
    raise io.UnsupportedOperation("fileno")


def become_windows() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    for module, names in UNIX_NAMES.items():
        for name in names:
            delattr(module, name)
    for name in UNIX_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # so an import of it fails
    socket.socketpair = _tcp_pair  # type: ignore[assignment]
    serial.Serial.fileno = no_descriptor  # type: ignore[method-assign]
    sys.platform = "win32"


if __name__ == "__main__":
    for command in ("boards.bridge.cli", *(f"host_broker.cli.{each}" for each in CLIENTS)):
        importlib.import_module(command)  # and with it all that it imports from others
    become_windows()
    importlib.import_module("motemq.cli").main(prog_name="motemq")
