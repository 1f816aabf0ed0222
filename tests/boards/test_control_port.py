"""The control port of virtual boards and of the fault proxy: who may use it."""

import json
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from boards.control_port import ControlServer, Refused, ask

_WAIT_S = 20.0


class _Control:
    """A port with one action, which counts."""

    def __init__(self) -> None:
        self.done = 0
        self._selector = selectors.DefaultSelector()
        self._server = ControlServer(self._selector, {"reset": self._reset})
        self.port = self._server.port
        self._ended, self._end = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _reset(self, _: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> None:
        self.done += 1
        answer({"done": self.done})

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.data is None:
                    return
                key.data(events)

    def close(self) -> None:
        self._end.send(b"x")
        self._thread.join(_WAIT_S)
        self._server.close()
        self._selector.close()
        self._ended.close()
        self._end.close()


@pytest.fixture
def control() -> Iterator[_Control]:
    made = _Control()
    yield made
    made.close()


def _said(control: _Control, data: bytes) -> bytes:
    """Say something and return all that comes up to the end."""
    with socket.create_connection(("127.0.0.1", control.port), _WAIT_S) as client:
        client.sendall(data)
        got = b""
        while part := client.recv(4096):
            got += part
    return got


@pytest.mark.parametrize("first", [b"POST / HTTP/1.1", b"GET / HTTP/1.0", b"PRI * HTTP/2.0"])
def test_a_page_controls_nothing(control: _Control, first: bytes) -> None:
    """A browser sends what a page wants in the body, and never without a line before it."""
    body = b'{"do": "reset"}\n'
    head = b"%s\r\nHost: 127.0.0.1\r\nContent-Length: 16\r\n\r\n" % first
    (line,) = _said(control, head + body).splitlines()
    assert "this is no JSON" in json.loads(line)["error"]
    assert control.done == 0


def test_any_program_of_the_machine_may(control: _Control) -> None:
    assert ask(control.port, "reset", timeout_s=_WAIT_S)["done"] == 1
    for wrong in ("nothing", ""):
        with pytest.raises(Refused, match="NAME one of"):
            ask(control.port, wrong, timeout_s=_WAIT_S)
    with socket.create_connection(("127.0.0.1", control.port), _WAIT_S) as client:
        client.sendall(b'[]\n"reset"\n{"do": "reset"}\n')
        with client.makefile("rb") as answers:
            assert [json.loads(answers.readline())["ok"] for _ in range(3)] == [False, False, True]
    assert control.done == 2
