"""What is published is complete, and installs: mip's lists, the compiled ones, the manifest.

Why so long: each way of installing is tried.
"""

import ast
import contextlib
import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import firmware.build
import umotemq
from boards.flash.esptool_flash import flash_esptool
from boards.mpremote_cli import mpremote
from boards.virtual.board import VirtualBoard
from firmware.cache import cache_dir
from firmware.node_files import client_sha, client_sources
from tests.client_upy.example_board import EXAMPLES, fmqp, received
from tests.client_upy.interpreters import CLIENT, ROOT, micropython
from tests.host_broker.net.broker_process import broker

_WAIT_S = 90.0
_EVERY = {path.name for path in client_sources()}


def _needed(*names: str) -> set[str]:
    """Return the files that programs need which use these modules over TCP."""
    found = {"__init__.py"}
    left = [*names, "tcp"]
    while left:
        file = f"{left.pop()}.py"
        if file in found or file not in _EVERY:
            continue
        found.add(file)
        for node in ast.walk(ast.parse((CLIENT / "umotemq" / file).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "umotemq":
                left += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("umotemq."):
                left.append(str(node.module).removeprefix("umotemq."))
            elif isinstance(node, ast.Import):
                names = (alias.name for alias in node.names)
                left += [n.removeprefix("umotemq.") for n in names if n.startswith("umotemq.")]
    return found


_PACKAGES = {
    ROOT / "package.json": _EVERY,
    CLIENT / "package.json": _EVERY,
    CLIENT / "package-fmqp.json": _needed("fmqp"),
    CLIENT / "package-lightmq.json": _needed("lightmq"),
    CLIENT / "package-micromsg2.json": _needed("micromsg2", "outage", "store"),
}
_names = functools.partial(map, lambda path: str(path.relative_to(ROOT)))


@pytest.mark.parametrize("path", _PACKAGES, ids=_names(_PACKAGES))
def test_mip_lists_what_is_needed(path: Path) -> None:
    package = json.loads(path.read_text())
    assert (package["version"], package["deps"]) == (umotemq.__version__, [])
    assert {target for target, _ in package["urls"]} == {f"umotemq/{f}" for f in _PACKAGES[path]}
    for target, source in package["urls"]:
        assert (path.parent / source).resolve() == CLIENT / target


def test_there_is_no_other_list() -> None:
    assert set(CLIENT.glob("package*.json")) | {ROOT / "package.json"} == set(_PACKAGES)


@pytest.mark.parametrize(
    ("protocol", "files"),
    [
        (None, _EVERY),
        ("fmqp", _needed("fmqp")),
        ("lightmq", _needed("lightmq")),
        ("micromsg2", _needed("micromsg2", "outage", "store")),
    ],
)
def test_the_manifest_freezes_what_is_needed(
    protocol: str | None, files: set[str], unix_port: Path, tmp_path: Path
) -> None:
    """Read by MicroPython's own reader of manifests, out of the sources that we build."""
    (reader, *_) = cache_dir().glob("micropython-source/*/micropython/tools/manifestfile.py")
    option = f', protocol="{protocol}"' if protocol else ""
    (tmp_path / "manifest.py").write_text(f'include("{CLIENT / "manifest.py"}"{option})\n')
    code = (
        "import manifestfile, sys\n"
        "read = manifestfile.ManifestFile(manifestfile.MODE_FREEZE, {'MPY_LIB_DIR': ''})\n"
        "read.execute(sys.argv[1])\n"
        "for file in read.files():\n"
        "    print(file.target_path, file.opt, file.kind == manifestfile.KIND_FREEZE_AS_MPY,\n"
        "          file.metadata.version)\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path / "manifest.py")],
        cwd=reader.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    version = umotemq.__version__
    assert set(done.stdout.splitlines()) == {f"umotemq/{file} 3 True {version}" for file in files}


def test_the_fingerprint_is_of_the_sources() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", client_sha())
    assert client_sha() == client_sha()
    assert not [name for name in _EVERY if name.startswith("_cpython")]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``motemq firmware client`` writes."""
    out = tmp_path_factory.mktemp("compiled")
    command = [sys.executable, "-m", "motemq", "firmware", "client", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(path) for path in sorted(out.glob("package*.json"))]
    return out


def test_compiled_packages_are_the_sources_compiled(compiled: Path) -> None:
    """Module by module; nothing is missing, or there for nothing."""
    written = set()
    for path in (CLIENT / "package.json", *CLIENT.glob("package-*.json")):
        stems = {Path(url).stem for _, url in json.loads(path.read_text())["urls"]}
        urls = json.loads((compiled / path.name).read_text())["urls"]
        assert urls == [[f"umotemq/{stem}.mpy"] * 2 for stem in sorted(stems)]
        written |= {compiled / source for _, source in urls}
    assert written == set((compiled / "umotemq").iterdir())


def test_tracebacks_name_what_is_in_the_sources(
    compiled: Path, unix_port: Path, tmp_path: Path
) -> None:
    """And whoever subclasses a client finds its methods under the names of the sources."""
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "from umotemq.fmqp import FmqpClient\n"
        "class Counted(FmqpClient):\n"
        "    packed = 0\n"
        "    def _pack(self, *message):\n"
        "        self.packed += 1\n"
        "        FmqpClient._pack(self, *message)\n"
        "    def readline(self): raise RuntimeError('a method of mine')\n"
        "class Transport:\n"
        "    where = 'here'\n"
        "    def open(self): raise ZeroDivisionError\n"
        "try:\n"
        "    Counted(Transport()).connect()\n"
        "except ZeroDivisionError as error:\n"
        "    sys.print_exception(error)\n"
    )
    code, text = micropython(unix_port, compiled).output(tmp_path / "script.py")
    assert code == 0, text
    for where in ("umotemq/link.py", "in connect", "in poll", "in _step"):
        assert where in text
    assert "in readline" not in text


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "motemq", "firmware", "client", str(tmp_path / "file" / "x")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert "Error: " in done.stderr


@pytest.fixture(scope="module")
def installing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualBoard]:
    """A virtual board that runs MicroPython and has no files."""
    image = firmware.build.ensure("vesp32")
    with VirtualBoard.start("esp32", "mip-1", tmp_path_factory.mktemp("board")) as board:
        board.control.boot()
        flash_esptool(
            image,
            board.address.serial_url,
            chip="esp32",
            offset=0x1000,
            deadline_s=_WAIT_S,
            progress=lambda line: None,
        )
        board.control.reset()
        yield board


@pytest.fixture
def published() -> Iterator[str]:
    """The repository as a web server shows it, so as GitHub does."""
    with served(ROOT) as url:
        yield url


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A web server of a folder; gives its URL."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


_USE = {
    "fmqp": """
from umotemq.fmqp import FmqpClient
client = FmqpClient(Tcp("127.0.0.1", PORT))
client.subscribe(b"a", lambda topic, payload: print(topic, payload))
client.connect()
client.publish(b"a", b"b")
client.ping()
""",
    "lightmq": """
from umotemq.lightmq import LightmqClient
client = LightmqClient(Tcp("127.0.0.1", PORT), b"kitchen")
client.connect()
print(client.send(b"hello"))
""",
    "micromsg2": """
from umotemq.micromsg2 import MicroMsg2Client
from umotemq.outage import Ring
from umotemq.store import FileStore
store = FileStore("/readings", 4096)
client = MicroMsg2Client(Tcp("127.0.0.1", PORT), outage=Ring(256, store=store, always=True))
client.subscribe(b"jobs", lambda name, payload: print(name, payload), queued=True)
client.publish(b"jobs", b"b", queued=True, confirm=True)
client.connect()
while client.outage.count:
    client.poll(1000)
client.ping()
""",
}
_SAID = {"fmqp": "b'a' b'b'", "lightmq": "b''", "micromsg2": "b'jobs' b'b'"}
_REMOVE = """
import os
try: os.remove("/readings")
except OSError: pass
for name in os.listdir("/lib/umotemq"):
    os.remove("/lib/umotemq/" + name)
os.rmdir("/lib/umotemq")
"""


def _listen() -> list[str]:
    return [word for name in _USE for word in ("--listen", f"{name}://127.0.0.1:0")]


@pytest.mark.parametrize(
    ("package", "protocols"),
    [
        ("{client}/package.json", ["fmqp", "lightmq", "micromsg2"]),
        ("{client}/package-fmqp.json", ["fmqp"]),
        ("{client}/package-lightmq.json", ["lightmq"]),
        ("{client}/package-micromsg2.json", ["micromsg2"]),
        ("{compiled}/package.json", ["fmqp", "lightmq", "micromsg2"]),
        ("{compiled}/package-fmqp.json", ["fmqp"]),
        ("{compiled}/package-micromsg2.json", ["micromsg2"]),
        ("{web}", ["fmqp", "lightmq", "micromsg2"]),
    ],
)
def test_it_installs_and_works(
    package: str, protocols: list[str], installing: VirtualBoard, compiled: Path, published: str
) -> None:
    """The real mpremote, a board that has nothing, a real broker."""

    def tool(*arguments: str) -> str:
        return mpremote(installing.address.serial_url, arguments, deadline_s=_WAIT_S)

    source = package.format(client=CLIENT, compiled=compiled, web=published)
    assert "Done" in tool("mip", "install", source)
    with broker(*_listen()) as running:
        for protocol in protocols:
            setup = "from umotemq.tcp import Tcp\nimport umotemq, sys\nprint(umotemq.__file__)\n"
            use = _USE[protocol].replace("PORT", str(running.ports[protocol]))
            file, *said = tool("soft-reset", "exec", setup + use).splitlines()
            assert file.startswith("/lib/umotemq/__init__.")
            assert file.endswith(".mpy") == ("compiled" in package)
            assert said == [_SAID[protocol]]
    tool("exec", _REMOVE)


def test_it_installs_from_an_index(installing: VirtualBoard, tmp_path: Path) -> None:
    """As from micropython-lib: by name, compiled for the board or as source."""
    command = [sys.executable, "-m", "motemq", "firmware", "client", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--index", str(tmp_path / "index")],
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    url = installing.address.serial_url
    with served(tmp_path / "index") as index, broker(*_listen()) as running:
        for protocol, version, flags, suffix in (
            ("fmqp", "", [], ".mpy"),
            ("fmqp", f"@{umotemq.__version__}", ["--no-mpy"], ".py"),
            ("micromsg2", "", [], ".mpy"),
        ):
            name = f"umotemq-{protocol}{version}"
            mpremote(url, ["mip", "install", "--index", index, *flags, name], deadline_s=_WAIT_S)
            setup = "from umotemq.tcp import Tcp\nimport umotemq, sys\nprint(umotemq.__file__)\n"
            use = _USE[protocol].replace("PORT", str(running.ports[protocol]))
            said = mpremote(url, ["soft-reset", "exec", setup + use], deadline_s=_WAIT_S)
            assert said.splitlines() == [f"/lib/umotemq/__init__{suffix}", _SAID[protocol]]
            mpremote(url, ["exec", _REMOVE], deadline_s=_WAIT_S)


def test_a_clone_installs_with_one_module_more(installing: VirtualBoard) -> None:
    """The README's commands, as typed in a clone."""
    url = installing.address.serial_url
    for command in (
        ["mip", "install", "./client_upy/package-lightmq.json"],
        ["cp", "client_upy/umotemq/outage.py", ":/lib/umotemq/outage.py"],
    ):
        text = (CLIENT / "README.md").read_text()
        assert " ".join(command[:-1])[:20] in text
        mpremote(url, command, deadline_s=_WAIT_S)
    said = mpremote(
        url,
        ["soft-reset", "exec", "import umotemq.outage, umotemq.lightmq; print('there')"],
        deadline_s=_WAIT_S,
    )
    assert said.strip() == "there"
    mpremote(url, ["exec", _REMOVE], deadline_s=_WAIT_S)


def test_the_distribution_for_computers_has_the_same_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--wheel-dir", str(tmp_path)]
    copy = tmp_path / "client_upy"  # the build leaves files behind
    shutil.copytree(CLIENT, copy)
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, timeout=_WAIT_S)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("umotemq-*.whl")
    assert wheel.name.startswith(f"umotemq-{umotemq.__version__}-")
    with zipfile.ZipFile(wheel) as files:
        packed = {
            name.removeprefix("umotemq/"): files.read(name)
            for name in files.namelist()
            if name.startswith("umotemq/")
        }
    there = {path.name: path.read_bytes() for path in (CLIENT / "umotemq").glob("*.*")}
    assert packed == there


def test_a_board_becomes_a_sensor(installing: VirtualBoard, compiled: Path, tmp_path: Path) -> None:
    """The README's way from a blank board to values that come, also after a reset."""
    with broker() as running, fmqp(running.ports["fmqp"]) as desk:
        config = (EXAMPLES / "config.example.py").read_text()
        config = config.replace("192.168.1.2", "127.0.0.1")
        config = config.replace("PORT = 8765", f"PORT = {running.ports['fmqp']}")
        (tmp_path / "config.py").write_text(config)
        url = installing.address.serial_url
        install = ["mip", "install", str(compiled / "package-fmqp.json")]
        mpremote(url, install, deadline_s=_WAIT_S)
        copy = ["cp", str(tmp_path / "config.py"), ":config.py"]
        copy += ["+", "cp", str(EXAMPLES / "sensor_node.py"), ":main.py"]
        mpremote(url, copy, deadline_s=_WAIT_S)
        desk.subscribe("home/kitchen/uptime")
        for _ in range(2):
            installing.control.reset()
            desk.sync()
            while desk.receive(timeout_s=0):
                continue  # said before the reset
            received(desk, "home/kitchen/uptime")
        mpremote(url, ["rm", ":main.py"], deadline_s=_WAIT_S)
