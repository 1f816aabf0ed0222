"""Protocols of installed packages that cannot be used: one line says whose and why, exit code 2."""

from pathlib import Path

import pytest

from tests.host_broker.cli.processes import run
from tests.host_broker.own_protocol.installed import write_package

_SPEC = """
from dataclasses import dataclass
from host_broker.protocol import FirstBytes, ProtocolSpec

@dataclass(frozen=True)
class Settings:
    limit: int = 1

SPEC = ProtocolSpec(name={name!r}, title="Broken", journal_code={code}, server=lambda *_: None,
                    settings=Settings, section={section!r}, first_bytes={first_bytes})
"""


def _spec(name: str = "broken", code: int = 150, section: str = "", first_bytes: str = "()") -> str:
    return _SPEC.format(name=name, code=code, section=section, first_bytes=first_bytes)


def _error() -> str:
    """Run a broker that must not start; return what the only line on stderr says."""
    done = run("broker", "--ephemeral", "--listen", "fmqp://127.0.0.1:0")
    assert (done.returncode, done.stdout) == (2, b"")
    line = done.stderr.decode()
    assert line.startswith("broker: error: the protocol ")
    assert line.count("\n") == 1
    return line.removeprefix("broker: error: ")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no such device\\non this machine')", "cannot be loaded: OSError: no such"),
        ("import not_there", "cannot be loaded: ModuleNotFoundError: No module named 'not_there'"),
        ("SPEC = (", "cannot be loaded: SyntaxError: "),
        ("", "cannot be loaded: AttributeError: module 'broken' has no attribute 'SPEC'"),
        ("SPEC = 'broken'", "is a str, not a ProtocolSpec"),
        (_spec(name="fmqp"), "calls itself 'fmqp', and that or 'fmqps' is in use"),
        (_spec(name="fmqps"), "calls itself 'fmqps', and that or 'fmqpss' is in use"),
        (_spec(name="auto"), "calls itself 'auto', and that or 'autos' is in use"),
        (_spec(name="My protocol"), "a name is lower-case letters and digits"),
        (_spec(code=1), "has journal_code 1; it must be one from 128 to 255"),
        (_spec(code=127), "has journal_code 127; it must be one from 128 to 255"),
        (_spec(code=256), "has journal_code 256; it must be one from 128 to 255"),
        (_spec(section="lightmq"), "has the settings section [lightmq], which is in use"),
        (_spec(first_bytes="(FirstBytes((b'',)),)"), "has first_bytes that no byte can begin"),
        (_spec(section="net"), "has the settings section [net], which is in use"),
    ],
)
def test_one_that_cannot_be_used(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "broken", code, "theirs = broken:SPEC")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    error = _error()
    assert error.startswith("the protocol 'theirs' of broken (broken:SPEC) ")
    assert said in error


def test_two_with_one_journal_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path, "one", _spec(name="one"), "one = one:SPEC")
    write_package(tmp_path, "two", _spec(name="two"), "two = two:SPEC")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "has journal_code 150; it must be one from 128 to 255 that no other" in _error()


def test_one_whose_server_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = _spec().replace("lambda *_: None", "lambda *_: 1 // 0")
    write_package(tmp_path, "broken", code, "broken = broken:SPEC")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert _error().startswith("the protocol 'broken' cannot start: ZeroDivisionError(")
