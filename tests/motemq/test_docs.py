"""The README and the docs tell the truth: their commands exist, and the quick start runs."""

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from benchmarks.__main__ import main as benchmarks
from motemq.cli import main

ROOT = Path(__file__).parents[2]
_PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")])
_PAGES += sorted(ROOT.glob("examples/*/README.md"))


def _commands(page: Path) -> list[str]:
    """Return the command lines in a page's ```sh blocks, continuation lines joined."""
    lines = []
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        joined = block.replace("\\\n", " ")
        lines += [line.strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _all_commands() -> list[tuple[str, str]]:
    return [(page.name, line) for page in _PAGES for line in _commands(page)]


def test_the_readme_shows_the_two_commands() -> None:
    commands = _commands(ROOT / "README.md")
    assert "make demo" in commands
    assert "make test" in commands


@pytest.mark.parametrize(("page", "line"), _all_commands())
def test_every_shown_command_exists(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for made_before in ("data/journal", "tables", "out/tables", "app"):
        (tmp_path / made_before).mkdir(parents=True)
    words = shlex.split(line.removesuffix("&"), comments=True)
    program, arguments = Path(words[0]).name, words[1:]
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [word for word in arguments if "=" not in word and word not in targets] == []
    elif program == "motemq":
        _parse(page, main, arguments)
    elif program == "python":
        assert arguments[:2] == ["-m", "benchmarks"]
        _parse(page, benchmarks, arguments[2:])
    else:
        known = {"git", "cd", "mpremote", "nc", "pip", "pytest", "kill", "wait"}
        assert program in known, f"{page}: what is '{program}'?"


def _parse(page: str, command: click.Command, arguments: list[str]) -> None:
    """Parse the arguments as the program would, without running anything."""
    context = click.Context(command, info_name=command.name)
    while isinstance(command, click.Group) and arguments:
        found = command.get_command(context, arguments[0])
        assert found is not None, f"{page}: {context.command_path} has no '{arguments[0]}'"
        command, arguments = found, arguments[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    # Parsing fails on an option or a number of arguments that the command does not take.
    command.make_context(command.name, arguments, parent=context.parent)


def test_the_quick_start_of_the_readme_runs() -> None:
    """Runs the block with `motemq broker … &` line by line, on a free port."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.M)
    (block,) = [block for block in blocks if "motemq broker" in block]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    broker_line, *client_lines = [line for line in block.splitlines() if line]

    def argv(line: str) -> list[str]:
        words = shlex.split(line.replace("8765", port).removesuffix("&"))
        return [sys.executable, "-m", *words[0:1], *words[1:]]

    # Without an address it is the documented port, which may be in use here.
    listen = ["--listen", f"auto://127.0.0.1:{port}"]
    broker = subprocess.Popen(argv(broker_line) + listen, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline() == f"listening auto 127.0.0.1:{port}\n"
        printed = ""
        for line in client_lines:
            result = subprocess.run(argv(line), capture_output=True, text=True, timeout=60)
            assert result.returncode == 0, f"{line}: {result.stderr}"
            printed += result.stdout
        assert "21.5" in printed
    finally:
        broker.terminate()
        broker.wait(30)
        if broker.stdout:
            broker.stdout.close()


def test_the_tests_that_the_page_about_security_names_are_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    named = re.findall(r"`([\w/]+/test_\w+\.py)(?:::(test_\w+))?`|`(test_\w+)`", page)
    assert len(named) > 30
    tests = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for file, name, alone in named:
        if alone:
            assert any(f"def {alone}(" in text for text in tests.values()), alone
            continue
        found = [tests.get(ROOT / "tests" / below / file) for below in ("", "host_broker")]
        (text,) = [text for text in found if text is not None]
        assert f"def {name or 'test_'}" in text, f"{file}::{name}"
