"""What is published is complete: mip's list, the manifest, and the README's examples."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import umotemq
from firmware.node_files import client_sha, client_sources
from tests.client_upy.interpreters import CLIENT, Interpreter

_INSTALLED = {path.name for path in client_sources()}


def test_mip_lists_every_file_for_boards() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    assert package["version"] == umotemq.__version__
    assert {target for target, _ in package["urls"]} == {f"umotemq/{name}" for name in _INSTALLED}
    assert all((CLIENT / source).is_file() for _, source in package["urls"])


def test_the_manifest_freezes_every_file_for_boards() -> None:
    calls = {}
    names = {
        "metadata": lambda **fields: calls.update(metadata=fields),
        "package": lambda name, **fields: calls.update({name: fields}),
    }
    exec((CLIENT / "manifest.py").read_text(), names)
    assert calls["metadata"]["version"] == umotemq.__version__
    assert set(calls["umotemq"]["files"]) == _INSTALLED


def test_the_fingerprint_is_of_the_sources() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", client_sha())
    assert client_sha() == client_sha()
    assert "_cpython.py" not in _INSTALLED


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """A real broker; the ports that stand in for those of the examples."""
    command = [sys.executable, "-m", "motemq", "broker", "--ephemeral"]
    listen = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"]
    with subprocess.Popen([*command, *listen], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = process.stdout.readline() + process.stdout.readline()
            found = dict(re.findall(r"^listening (\w+) 127\.0\.0\.1:(\d+)$", lines, re.M))
            yield {"1884": found["fmqp"], "1997": found["lightmq"]}
        finally:
            process.terminate()
            process.wait(timeout=20)


def test_the_readme_examples_run(
    interpreter: Interpreter, ports: dict[str, str], tmp_path: Path
) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (CLIENT / "README.md").read_text(), re.M | re.S)
    expected = ["b'home/kitchen/lamp' b'on'\nTrue\n", "b''\n"]
    assert len(examples) == len(expected)
    for number, (example, output) in enumerate(zip(examples, expected, strict=True)):
        script = tmp_path / f"example{number}.py"
        for documented, real in ports.items():
            example = example.replace(documented, real)
        script.write_text(example)
        assert interpreter.output(script) == (0, output)
