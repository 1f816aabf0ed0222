"""The board's side of the reliable link, on every interpreter; tests/boards/link has both sides."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client_upy.interpreters import ROOT, Interpreter, run_checks


@pytest.fixture(scope="module")
def link_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of tests/vectors/link.json, one JSON object a line."""
    document = json.loads((ROOT / "tests" / "vectors" / "link.json").read_text())
    lines = [
        json.dumps(vector) for part in ("frames", "streams", "talks") for vector in document[part]
    ]
    file = tmp_path_factory.mktemp("vectors") / "link.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_vectors(interpreter: Interpreter, link_vectors: Path) -> None:
    run_checks(interpreter, "vectors_link", str(link_vectors))


def test_over_memory(interpreter: Interpreter, say: Callable[[str], None]) -> None:
    text = run_checks(interpreter, "reliable")
    say("\n".join(line for line in text.splitlines() if line.startswith("heap: ")))
