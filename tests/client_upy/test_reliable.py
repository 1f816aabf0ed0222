"""The board's side of the reliable link, everywhere; tests/boards/bridge/link has both sides."""

from collections.abc import Callable

from tests.client_upy.interpreters import Interpreter, run_checks


def test_over_memory(interpreter: Interpreter, say: Callable[[str], None]) -> None:
    text = run_checks(interpreter, "reliable")
    say("\n".join(line for line in text.splitlines() if line.startswith("heap: ")))
