"""An extension of MicroMsg2 that pip has installed, in a broker of its own; docs/micromsg2.md."""

import re
import shlex
import shutil
import socket
import zlib
from pathlib import Path

import pytest

from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import (
    ErrorFrame,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.protocols.micromsg2.grammar import read_extensions
from tests.host_broker.cli.processes import run
from tests.host_broker.net.broker_process import END_S, BrokerProcess
from tests.host_broker.own_protocol.installed import finding, install, write_package

_ROOT = Path(__file__).parents[3]
_PACKAGE = Path(__file__).parents[1] / "deflate_extension"
_PAGE = (_ROOT / "docs" / "micromsg2.md").read_text()
_BREAKS = """
from host_broker.protocols.micromsg2.vendor import ExtensionSession, VendorExtension

class Breaks(ExtensionSession):
    def received(self, payload):
        raise RuntimeError(payload)

SPEC = VendorExtension(name="x-acme-breaks", open=lambda said: Breaks(), policy="suggested")
"""


class _Peer:
    """A client with a plain socket."""

    def __init__(self, port: int, extensions: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=END_S)
        self.codec = Codec("client")
        hello = Handshake(1, 0, "board", read_extensions(extensions.encode()))
        self.socket.sendall(spell_handshake(hello))
        (self.answer,) = self.hear(1)
        self.socket.sendall(spell_handshake(hello))

    def hear(self, count: int) -> list[object]:
        """Return so many events, or those that come before the end."""
        events: list[object] = []
        while len(events) < count and (data := self.socket.recv(65536)):
            events += self.codec.receive_data(data)
        return events


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)


def test_an_installed_one(tmp_path: Path) -> None:
    """R14: by the page's own commands; beside one that fails, which costs its connection and a
    line of the log."""
    *_, block = _blocks("sh")
    pip, broker = [shlex.split(line) for line in block.splitlines()]
    assert pip[:2] == ["pip", "install"]
    install(tmp_path, str(_ROOT / pip[2]))
    breaks = "breaks = acme_breaks:SPEC"
    write_package(tmp_path, "acme_breaks", _BREAKS, breaks, "motemq.micromsg2")
    listen = ["--listen", "micromsg2://127.0.0.1:0"]
    running = BrokerProcess(*broker[2:], *listen, shell_prefix=finding(tmp_path))
    port = running.ports["micromsg2"]
    board = _Peer(port, "pubsub;x-acme-deflate:level=9")
    assert isinstance(board.answer, Handshake)
    assert [each.name for each in board.answer.optional] == ["x-acme-breaks"]
    board.socket.sendall(spell_command_frame("subscribe", [("topic", b"t")]))
    for _ in range(2):
        broken = _Peer(port, "x-acme-breaks")
        broken.socket.sendall(spell_extension(1, b"?"))
        assert broken.hear(2) == [ErrorFrame("the extension x-acme-breaks failed")]
        broken.socket.close()
    board.socket.sendall(spell_message(1, b"topic/t", b"", zlib.compress(b"0" * 500)))
    (message,) = board.hear(1)
    assert isinstance(message, MessageFrame)
    assert zlib.decompress(message.payload) == b"0" * 500
    board.socket.sendall(spell_extension(2, b"?"))
    (saved,) = board.hear(1)
    assert isinstance(saved, ExtensionFrame)
    assert saved.index == 2
    assert int(saved.payload) > 900
    board.socket.close()
    code, said = running.end()
    lines = [line for line in said.splitlines() if "x-acme-breaks" in line]
    assert code == 0
    assert 1 <= len(lines) <= 2  # the second may come too soon to be logged
    assert f"failed in received at {tmp_path}/acme_breaks.py:6: RuntimeError: b'?'" in lines[0]
    assert "Traceback" not in said


def test_the_page_shows_the_package_as_it_is() -> None:
    code = (_PACKAGE / "motemq_deflate.py").read_text()
    shown = _blocks("python")
    assert len(shown) == 2
    assert [block for block in shown if block not in code] == []
    (toml,) = _blocks("toml")
    assert toml in (_PACKAGE / "pyproject.toml").read_text()


def test_the_line_about_one_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(_PACKAGE, tmp_path / "copy")
    module = copy / "motemq_deflate.py"
    text = module.read_text()
    assert 'name="x-acme-deflate"' in text
    module.write_text(text.replace('name="x-acme-deflate"', 'name="deflate"'))
    install(tmp_path / "installed", str(copy))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    done = run("broker", "--ephemeral", "--listen", "micromsg2://127.0.0.1:0")
    assert (done.returncode, done.stderr.decode()) == (2, _blocks("text")[0])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no such device\\non this machine')", "cannot be loaded: OSError: no such"),
        ("SPEC = 'x-a'", "is a str, not a VendorExtension"),
    ],
)
def test_one_that_is_none(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "acme", code, "theirs = acme:SPEC", "motemq.micromsg2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run("broker", "--ephemeral", "--listen", "fmqp://127.0.0.1:0")
    line = done.stderr.decode()
    assert (done.returncode, line.count("\n")) == (2, 1)
    assert f"the MicroMsg2 extension 'theirs' of acme (acme:SPEC) {said}" in line
