"""docs/own-protocol.md shows the folder as it is, and its commands and its conversation run."""

import ast
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host_broker.cli.processes import run
from tests.host_broker.net.broker_process import BrokerProcess
from tests.host_broker.own_protocol.installed import PACKAGE, Netcat, finding, install

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs" / "own-protocol.md").read_text()
_SHOWN = re.findall(
    r"\[`([^`]+)`\]\(([^)]+)\)(, all of it)?:\n\n```(?:python|toml)\n(.*?)^```",
    _PAGE,
    re.MULTILINE | re.DOTALL,
)
# What a package may use of MoteMQ.
_PUBLIC = re.compile(
    r"host_broker\.(protocol|settings|outputs|bus\.\w+|wire\.\w+)|motemq_line\.\w+"
)
_NEEDED = ("__init__", "settings", "codec", "session", "server")


@pytest.mark.parametrize(("name", "link", "all_of_it", "code"), _SHOWN)
def test_what_is_shown_is_what_is_there(name: str, link: str, all_of_it: str, code: str) -> None:
    file = PACKAGE / name
    assert (_ROOT / "docs" / link).resolve() == file.resolve()
    text = file.read_text()
    assert code == text if all_of_it else code in text


def test_no_code_is_shown_without_its_file_and_no_file_is_left_out() -> None:
    fences = re.findall(r"^```(?:python|toml)$", _PAGE, re.MULTILINE)
    assert len(fences) == len(_SHOWN)
    shown = {name for name, *_ in _SHOWN}
    assert shown == {"pyproject.toml", *(f"motemq_line/{name}.py" for name in _NEEDED)}
    written = {path.stem for path in (PACKAGE / "motemq_line").glob("*.py")}
    assert written == set(_NEEDED)


@pytest.mark.parametrize("name", _NEEDED)
def test_it_needs_no_more_of_motemq_than_the_page_says(name: str) -> None:
    tree = ast.parse((PACKAGE / "motemq_line" / f"{name}.py").read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    ours = [each for each in modules if each.startswith(("host_broker", "motemq"))]
    assert [each for each in ours if not _PUBLIC.fullmatch(each)] == []
    others = set(modules) - set(ours)
    assert others <= {"collections.abc", "dataclasses", "typing", "urllib.parse"}


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_and_the_conversation(tmp_path: Path, nc: Callable[..., Netcat]) -> None:
    (block,) = _blocks("sh")
    pip, broker, netcat = [shlex.split(line.removesuffix("&")) for line in block.splitlines()]
    assert pip[:2] == ["pip", "install"]
    install(tmp_path, str(_ROOT / pip[2]))
    assert broker[:2] == ["motemq", "broker"]
    # Without an address it is the documented port, which may be in use here.
    listen = ["--listen", "auto://127.0.0.1:0"]
    running = BrokerProcess(*broker[2:], *listen, shell_prefix=finding(tmp_path))
    try:
        assert netcat == ["nc", "127.0.0.1", "8765"]
        people: dict[str, Netcat] = {}
        for line in _blocks("text")[0].splitlines():
            person, said, text = line[0], line[1], line[3:]
            if person not in people:
                people[person] = nc(netcat[1], str(running.ports["auto"]))
            if said == ">":
                people[person].say(text)
            else:
                assert said == "<"
                assert people[person].hear() == text
        assert people["B"].rest() == ""
        people["A"].say("quit")
        assert people["A"].rest() == "bye\n"
    finally:
        running.end()


def test_the_line_about_a_protocol_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "copy")
    spec = copy / "motemq_line" / "__init__.py"
    text = spec.read_text()
    assert "journal_code=200" in text
    spec.write_text(text.replace("journal_code=200", "journal_code=1"))
    install(tmp_path / "installed", str(copy))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    done = run("broker", "--ephemeral")
    assert (done.returncode, done.stderr.decode()) == (2, _blocks("text")[1])
