"""The interpreters that every check runs on, and what the checks talk to."""

import json
from collections.abc import Iterator

import pytest

from tests.client_upy.fault_server import FaultServer
from tests.client_upy.interpreters import ROOT, Interpreter, cpython, micropython


@pytest.fixture(scope="session", params=["cpython", "micropython", "micropython-mpy"])
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    if request.param == "cpython":
        return cpython()
    executable = request.getfixturevalue("unix_port")
    if request.param == "micropython":
        return micropython(executable)
    return micropython(executable, request.getfixturevalue("board_files") / "lib")


@pytest.fixture(scope="session")
def fault_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file with the ports of a running fault server."""
    with FaultServer() as server:
        file = tmp_path_factory.mktemp("faults") / "ports.json"
        file.write_text(json.dumps(server.ports))
        yield str(file)


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each protocol the file of its vectors, one JSON object a line: a board has no heap
    for all of them, and its json module knows no surrogate escapes."""
    folder = tmp_path_factory.mktemp("vectors")
    files = {}
    for protocol in ("fmqp", "lightmq"):
        document = json.loads((ROOT / "tests" / "vectors" / f"{protocol}.json").read_text())
        lines = [json.dumps(vector, ensure_ascii=False) for vector in document["vectors"]]
        file = folder / f"{protocol}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        files[protocol] = str(file)
    return files
