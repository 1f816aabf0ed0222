"""The README tells the truth: its programs run, its tables are the code's."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mpremote.mip import _rewrite_url

from firmware.client_package import write_packages
from firmware.node_files import client_sources
from host_broker.client import connect
from tests.client_upy.board_typings import check_types
from tests.client_upy.interpreters import CLIENT, ROOT, Interpreter
from tests.host_broker.net.broker_process import BrokerProcess, broker, line_of, spawn
from umotemq.chunks import ChunkClient
from umotemq.fmqp import FmqpClient
from umotemq.fragments import FragmentClient
from umotemq.lightmq import LightmqClient
from umotemq.link import Link
from umotemq.tcp import Tcp

_TEXT = (CLIENT / "README.md").read_text()
_PROGRAMS = re.findall(r"^```python\n(.*?)^```", _TEXT, re.M | re.S)
_BOARD_ONLY = re.findall(r"^```python board\n(.*?)^```", _TEXT, re.M | re.S)
_SAID = [
    "True\n",
    "b'home/kitchen/lamp' b'on'\n",
    "2 True\n",
    "False\nwanted True\nTrue\nb'32'\nwanted False\n",
    "2 0\n0 True None 1\n",
    "True\n",
    "all 10000\n",
    "b''\n",
    "b'home/kitchen/lamp' b'on'\njob b'1'\n0\n",
    "True\n",
    "b'home/kitchen/lamp' b'on' 0\n",
]


def _rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without its head."""
    section = _TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@pytest.fixture(scope="module")
def live() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0") as running:
        yield running


@pytest.mark.parametrize("number", range(len(_SAID)))
def test_its_programs_run(
    number: int, usual: Interpreter, live: BrokerProcess, tmp_path: Path
) -> None:
    assert len(_PROGRAMS) == len(_SAID)
    script = tmp_path / "program.py"
    places = {"192.168.1.2": "127.0.0.1", "8765": "auto"}
    text = _PROGRAMS[number]
    for written, real in places.items():
        text = text.replace(written, str(live.ports.get(real, real)))
    script.write_text(text)
    assert usual.output(script) == (0, _SAID[number])


def test_its_broker_can_be_reached_from_the_network() -> None:
    """The first command as typed, but for the port. On loopback alone it has one address."""
    command = re.findall(r"^motemq (broker .*)$", _TEXT, re.M)[0].replace(":8765", ":0")
    process = spawn([sys.executable, "-m", "motemq", *shlex.split(command)])
    try:
        port = int(line_of(process, 30).rsplit(":", 1)[1])
        for address in ("127.0.0.1", "127.0.0.2"):
            with connect(f"fmqp://{address}:{port}") as client:
                client.sync()
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_what_needs_a_board_fits_the_code(typings: Path, tmp_path: Path) -> None:
    assert len(_BOARD_ONLY) == 6
    for number, program in enumerate(_BOARD_ONLY):
        (tmp_path / "program.py").write_text(program)
        code, said = check_types(["program.py"], tmp_path, typings)
        assert code == 0, f"{number}: {said}"


def test_its_options_are_the_code_s() -> None:
    tcp = Tcp("127.0.0.1", 1)
    # As constructed by default, but for the name, which is then made up.
    found = {}
    for client in (FragmentClient, LightmqClient, ChunkClient, FmqpClient, Link):
        names = (name for name in dir(client) if not name.startswith("_"))
        values = {name: getattr(client, name) for name in names}
        found |= {
            name: value
            for name, value in values.items()
            if not callable(value) and not isinstance(value, property)
        }
    written = {name.strip("`"): default.strip("`") for name, default, _ in _rows("Options")}
    assert written == {
        name: str(value) if not isinstance(value, str) else f'"{value}"'
        for name, value in found.items()
    }
    assert FmqpClient(tcp).name


def test_its_errors_are_the_code_s() -> None:
    written = {name.partition(",")[0].strip("`") for name, _, _ in _rows("What can go wrong")}
    code = "".join(path.read_text() for path in client_sources())
    found = set(re.findall(r'(?:_fail|LinkError|ValueError\))\("(\w+)"', code))
    for pair in re.findall(r'"(\w+)" if self.up else "(\w+)"', code):
        found |= set(pair)
    assert written == found
    assert len(found) > 5


def test_its_sizes_are_about_right(tmp_path: Path) -> None:
    write_packages(tmp_path)
    size = {path.stem: path.stat().st_size for path in (tmp_path / "umotemq").iterdir()}

    def of(package: str) -> int:
        urls = json.loads((tmp_path / f"{package}.json").read_text())["urls"]
        return sum(size[Path(target).stem] for target, _ in urls)

    one = ("__init__", "link", "tcp", "fmqp")
    both = (*one, "lightmq", "aio", "uart")
    real = [
        sum(size[name] for name in one),
        of("package-fmqp"),
        of("package-lightmq"),
        of("package-micromsg2"),
        sum(size[name] for name in both),
        sum(size.values()),
    ]
    for (_, written), found in zip(_rows("Size"), real, strict=True):
        assert found <= int(written) <= found + 500


def test_its_examples_exist() -> None:
    section = _TEXT.split("[`examples/`]")[1].split("## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", section))
    there = {path.stem for path in (CLIENT / "examples").iterdir() if path.stem[0] != "_"}
    assert named == there - {"config.example", "config"}


def test_what_it_installs_from_github_is_there() -> None:
    """By mpremote's own rule for where a package is, and where what it lists."""
    sources = set(re.findall(r"github:ORG/REPO[\w/.-]*", _TEXT))
    assert len(sources) == 4
    for source in sources:
        if not source.endswith((".py", ".json")):
            source += "/package.json"
        there = _on_github(source)
        assert there.is_file()
        if there.suffix == ".json":
            base = source.rpartition("/")[0]
            files = [
                _on_github(f"{base}/{url}") for _, url in json.loads(there.read_text())["urls"]
            ]
            assert files
            assert [str(file) for file in files if not file.is_file()] == []


def _on_github(source: str) -> Path:
    url = _rewrite_url(source)
    start = "https://raw.githubusercontent.com/ORG/REPO/HEAD/"
    assert url.startswith(start)
    return ROOT / url.removeprefix(start)
