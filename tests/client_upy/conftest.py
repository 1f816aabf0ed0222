"""The interpreters that every check runs on, and what the checks talk to."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import firmware.build
from tests.client_upy.board_typings import write_typings
from tests.client_upy.broker_side import BrokerSide
from tests.client_upy.fault_server import FaultServer
from tests.client_upy.fault_sides import fault_sides
from tests.client_upy.interpreters import (
    INTERPRETERS,
    ROOT,
    Interpreter,
    cpython,
    micropython,
    micropython_32,
    micropython_lwip,
)
from tests.client_upy.tls_side import tls_side


# Of a module: else all modules' tests on one interpreter would come before all on the next one, and
# each module would set up its brokers once for each.
@pytest.fixture(scope="module", params=INTERPRETERS)
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    match request.param:
        case "cpython":
            return cpython()
        case "micropython":
            return micropython(request.getfixturevalue("unix_port"))
        case "micropython-mpy":
            executable = request.getfixturevalue("unix_port")
            return micropython(executable, request.getfixturevalue("board_files") / "lib")
        case "micropython-32":
            board_files = request.getfixturevalue("board_files")
            return micropython_32(request.getfixturevalue("unix32_port"), board_files / "lib")
        case "micropython-lwip":
            files = request.getfixturevalue("board_files")
            return micropython_lwip(request.getfixturevalue("unix_port"), files / "lib")
    return micropython(firmware.build.ensure("unix126"))


@pytest.fixture(params=["cpython", "micropython-mpy"])
def usual(request: pytest.FixtureRequest) -> Interpreter:
    """For tests of what users do, which need not run everywhere: a PC, and what boards get."""
    if request.param == "cpython":
        return cpython()
    files = request.getfixturevalue("board_files")
    return micropython(request.getfixturevalue("unix_port"), files / "lib")


@pytest.fixture(scope="session")
def typings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for mypy, with stubs of what programs for boards import besides the client."""
    folder = tmp_path_factory.mktemp("typings")
    write_typings(folder)
    return folder


@pytest.fixture(scope="session")
def unix32_port() -> Path:
    """MicroPython as a 32-bit program: its bytes of heap are a board's."""
    return firmware.build.ensure("unix32")


@pytest.fixture(scope="session")
def fault_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file with the ports of a running fault server."""
    with FaultServer() as server:
        file = tmp_path_factory.mktemp("faults") / "ports.json"
        file.write_text(json.dumps(server.ports))
        yield str(file)


@pytest.fixture(scope="module")
def broker_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file with the ports of a running broker and of what stands before it."""
    with BrokerSide() as side:
        yield str(side.written_to(tmp_path_factory.mktemp("broker") / "ports.json"))


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of certificates, and the ports of those who show them."""
    folder = tmp_path_factory.mktemp("tls")
    with tls_side(folder):
        yield folder


@pytest.fixture(scope="module")
def fault_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For each transport a file that says where the faults and a good broker are."""
    folder = tmp_path_factory.mktemp("faults")
    with fault_sides(folder):
        yield folder


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each protocol the file of its vectors, one JSON object a line: a board has no heap
    for all of them, and its json module knows no surrogate escapes."""
    folder = tmp_path_factory.mktemp("vectors")
    files = {}
    parts = {name: ["vectors"] for name in ("fmqp", "lightmq", "micromsg2")}
    parts["link"] = ["frames", "streams", "talks"]
    for protocol, names in parts.items():
        document = json.loads((ROOT / "tests" / "vectors" / f"{protocol}.json").read_text())
        vectors = [vector for name in names for vector in document[name]]
        lines = [json.dumps(vector, ensure_ascii=False) for vector in vectors]
        file = folder / f"{protocol}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        files[protocol] = str(file)
    return files
