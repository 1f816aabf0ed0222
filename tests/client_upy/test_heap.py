"""What the client costs a board: bytes per message, of flash, and of heap before any message."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.client import size
from benchmarks.client.imports import imported
from benchmarks.client.runs import Device
from tests.client_upy.interpreters import (
    Interpreter,
    cpython,
    micropython,
    micropython_32,
    run_checks,
)


@pytest.mark.parametrize("width", [32, 64])
def test_messages_allocate_nothing(
    width: int,
    unix_port: Path,
    unix32_port: Path,
    board_files: Path,
    fault_ports: str,
    say: Callable[[str], None],
) -> None:
    lib = board_files / "lib"
    board = micropython_32(unix32_port, lib) if width == 32 else micropython(unix_port, lib)
    text = run_checks(board, "heap", fault_ports)
    figures = [line for line in text.splitlines() if line.startswith("heap: ")]
    assert len(figures) == 16
    say("\n".join(figures))


def test_compiled_size_is_within_its_budget(board_files: Path, say: Callable[[str], None]) -> None:
    sizes = {path.stem: path.stat().st_size for path in (board_files / "lib/umotemq").glob("*.mpy")}
    table, wrong = size.judged(sizes, size.budget())
    say(table)
    assert wrong == []


def test_importing_is_within_its_budget(
    unix32_port: Path, board_files: Path, say: Callable[[str], None]
) -> None:
    imports = size.budget().imports
    groups = [",".join(f"umotemq.{module}" for module in each.modules) for each in imports]
    board = Device(unix32_port, board_files / "lib", {})
    # asyncio is the program's, whether it uses ours or not.
    took = imported(board, "64k", "asyncio", *groups)
    for group, each in zip(groups, imports, strict=True):
        say(f"import {each.about}: {took[group]:.0f} B, budget {each.budget}, goal {each.goal}")
        assert took[group] <= each.budget


def test_a_size_above_its_budget_is_told() -> None:
    whole = size.Whole("all", ("link", "tcp"), 30, 20)
    written = size.Budget({"link": 20, "tcp": 20, "gone": 1}, (whole,), ())
    _, wrong = size.judged({"link": 21, "tcp": 10, "new": 1}, written)
    assert wrong == [
        "all: 31 bytes, 1 above its budget",
        "gone: in size.toml, but no module",
        "link: 21 bytes, 1 above its budget",
        "new: 1 bytes, 1 above its budget",
        "new: no budget in size.toml",
    ]
    assert size.judged({"link": 20, "tcp": 10, "gone": 1}, written)[1] == []


def test_a_failing_check_fails(tmp_path: Path, unix_port: Path) -> None:
    """The runner itself: a check that fails is seen on both interpreters."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent / 'device')!r})\n"
        "from checks import check, equal, run\n"
        "@check\n"
        "def wrong():\n"
        "    equal(1, 2)\n"
        "run()\n"
    )
    for interpreter in (cpython(), micropython(unix_port)):
        assert isinstance(interpreter, Interpreter)
        code, text = interpreter.output(script)
        assert code == 1, text
        assert "FAIL wrong" in text
        assert "done 1 checks, 1 failed" in text
