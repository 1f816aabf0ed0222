"""What the client costs a board: bytes per message, bytes of flash."""

from collections.abc import Callable
from pathlib import Path

from tests.client_upy.interpreters import Interpreter, cpython, micropython, run_checks

# Bytes of .mpy; a larger figure needs a reason here.
_BUDGET = {
    "__init__": 100,
    "fmqp": 3100,
    "lightmq": 4200,
    "link": 2800,
    "tcp": 1150,
    "topic": 900,
    "uart": 800,
}


def test_messages_allocate_nothing(
    unix_port: Path, board_files: Path, fault_ports: str, say: Callable[[str], None]
) -> None:
    text = run_checks(micropython(unix_port, board_files / "lib"), "heap", fault_ports)
    figures = [line for line in text.splitlines() if line.startswith("heap: ")]
    assert len(figures) == 4
    say("\n".join(figures))


def test_compiled_size_is_within_its_budget(board_files: Path, say: Callable[[str], None]) -> None:
    sizes = {path.stem: path.stat().st_size for path in (board_files / "lib/umotemq").glob("*.mpy")}
    assert sizes.keys() == _BUDGET.keys()
    lines = [f"{name}.mpy {size} B of {_BUDGET[name]}" for name, size in sorted(sizes.items())]
    say("\n".join([*lines, f"all of umotemq {sum(sizes.values())} B"]))
    assert {name: size for name, size in sizes.items() if size > _BUDGET[name]} == {}


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
