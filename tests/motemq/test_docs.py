"""The README and the docs tell the truth: their commands exist, and the quick start runs."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from benchmarks.__main__ import main as benchmarks
from benchmarks.ports import port_for_later
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
        known = {"git", "cd", "curl", "mpremote", "nc", "pip", "pytest", "kill", "wait"}
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
    port = str(port_for_later())
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
            result = subprocess.run(argv(line), capture_output=True, text=True, timeout=180)
            assert result.returncode == 0, f"{line}: {result.stderr}"
            printed += result.stdout
        assert "21.5" in printed
    finally:
        broker.terminate()
        broker.wait(30)
        if broker.stdout:
            broker.stdout.close()


# ---- the page about security: every sentence with its test ----

_SECURITY = (ROOT / "docs" / "security.md").read_text()
_NOTE = re.compile(r"\[\^([\w-]+)\]")
# Sentences that claim nothing of the broker.
_NO_CLAIM = (
    "Each sentence has a note,",
    "there the test is an attack that works.",
    "Notes are at the end;",
    "Assets: what boards say",
    "Every connection and every request has one.",
    "It is made of what can be proved:",
    "It needs `motemq[certs]`.",
    "`access.rules` is one TOML file:",
)


def _claims(page: str) -> list[str]:
    """Return the sentences of the page, and the cells of its tables below their heads."""
    text, _, _ = page.partition("## Notes")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    claims = []
    for block in re.split(r"\n\s*\n|\n(?=- )", text):
        if block.startswith("|"):
            for row in block.splitlines()[2:]:
                claims += [cell.strip() for cell in row.strip("|").split("|")[1:]]
        elif not block.startswith("#"):
            line = " ".join(block.split()).removeprefix("- ")
            claims += re.split(r"(?<=[.:])\s+(?=[`*]*[A-Z]|there the)", line)
    sentences = []
    for claim in claims:
        sentences += re.split(r"(?<=\.)\s+(?=[`A-Z])", claim)
    return [each for each in sentences if each and not each.startswith("\u2013")]


def _notes(page: str) -> dict[str, list[str]]:
    """Return the tests of each note, paths from the root."""
    notes: dict[str, list[str]] = {}
    for label, text in re.findall(r"^\[\^([\w-]+)\]: (.*)$", page, re.MULTILINE):
        assert label not in notes, label
        file = ""
        notes[label] = []
        for name in re.findall(r"`([^`]+)`", text):
            if not name.startswith("::"):
                file = f"tests/{name.partition('::')[0]}"
            notes[label].append(file + (f"::{name.partition('::')[2]}" if "::" in name else ""))
    return notes


def test_every_sentence_about_security_has_its_test() -> None:
    claims = _claims(_SECURITY)
    assert len(claims) > 80
    without = [
        claim for claim in claims if not _NOTE.search(claim) and not claim.startswith(_NO_CLAIM)
    ]
    assert without == []
    for each in _NO_CLAIM:
        assert any(claim.startswith(each) for claim in claims), each
    body, _, _ = _SECURITY.partition("## Notes")
    assert set(_NOTE.findall(body)) == set(_notes(_SECURITY))


@pytest.mark.parametrize(
    "claim",
    ["| a | It stops[^x]. | It does not. |", "- One[^x]. Two is **new**.", "It is so.\n\nB[^x]."],
)
def test_a_sentence_without_a_test_is_found(claim: str) -> None:
    page = f"# S\n\n| h | i | j |\n|---|---|---|\n{claim}\n" if claim[0] == "|" else claim
    assert [bool(_NOTE.search(each)) for each in _claims(page)].count(False) == 1


def _collected(file: str) -> Iterator[str]:
    """Give the tests of a file that pytest collects and does not leave out."""
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = " ".join(ast.unparse(each) for each in node.decorator_list)
            if "mark.skip" not in marks and "xfail" not in marks:
                yield node.name


def test_the_tests_of_the_page_about_security_are_there() -> None:
    for names in _notes(_SECURITY).values():
        assert names
        for name in names:
            file, _, test = name.partition("::")
            assert re.fullmatch(r"tests/[\w/]+/test_\w+\.py", file), name
            found = set(_collected(file))
            assert test in found if test else found, name
