"""Functions for programs that pip has installed; docs/fq.md."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from host_broker.protocols.fq.functions import broker_functions
from host_broker.protocols.fq.programs import ProgramError, compile_program
from motemq_hot import JSON_ABOVE
from tests.host_broker.cli.processes import run
from tests.host_broker.own_protocol.installed import install, write_package

_ROOT = Path(__file__).parents[3]
_PACKAGE = Path(__file__).parents[1] / "fq_functions"
_PAGE = (_ROOT / "docs" / "fq.md").read_text()
_SECTION = _PAGE.partition("## Your own functions")[2].partition("\n## ")[0]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _SECTION, re.MULTILINE | re.DOTALL)


def test_the_function_of_the_page() -> None:
    """R41, R43: a program calls it as one of fq's own, by its signature."""
    (program,) = re.findall(r"`(prefix:.*?\))`", _SECTION)
    functions = broker_functions(lambda: 0, own=[JSON_ABOVE])
    wants = compile_program(program.encode(), functions)
    assert wants(b"home.oven", b'{"temp": 31.5}')
    for payload in (b'{"temp": 30}', b'{"temp": "31"}', b'{"temp": true}', b"[]", b"{}", b"31"):
        assert not wants(b"home.oven", payload)
    assert not wants(b"cellar", b'{"temp": 31.5}')
    with pytest.raises(ProgramError, match=r"json_above\(sd\)"):
        compile_program(b'prefix: json_above("temp")', functions)


def test_the_page_shows_the_package_as_it_is() -> None:
    code = (_PACKAGE / "motemq_hot.py").read_text()
    (shown,) = _blocks("python")
    assert shown in code
    (toml,) = _blocks("toml")
    assert toml in (_PACKAGE / "pyproject.toml").read_text()
    (block,) = _blocks("sh")
    pip, broker = [shlex.split(line) for line in block.splitlines()]
    assert pip == ["pip", "install", "./tests/host_broker/fq_functions"]
    assert broker[:2] == ["motemq", "broker"]


def test_the_line_about_one_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(_PACKAGE, tmp_path / "copy")
    module = copy / "motemq_hot.py"
    text = module.read_text()
    assert 'RouteFunction("json_above", "sd"' in text
    module.write_text(
        text.replace('RouteFunction("json_above", "sd"', 'RouteFunction("sample", "d"')
    )
    install(tmp_path / "installed", str(copy))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    done = run("broker", "--ephemeral", "--listen", "fq://127.0.0.1:0")
    assert (done.returncode, done.stderr.decode()) == (2, _blocks("text")[0])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no such device\\non this machine')", "cannot be loaded: OSError: no such"),
        ("SPEC = 'f'", "is a str, not a RouteFunction"),
    ],
)
def test_one_that_is_none(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "acme", code, "theirs = acme:SPEC", "motemq.fq")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run("broker", "--ephemeral", "--listen", "fmqp://127.0.0.1:0")
    line = done.stderr.decode()
    assert (done.returncode, line.count("\n")) == (2, 1)
    assert f"the fq function 'theirs' of acme (acme:SPEC) {said}" in line
