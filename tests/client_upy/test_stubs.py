"""What an editor shows is what the code does: the .pyi files, against the code and in use."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.client_upy.board_typings import check_types, run_module
from tests.client_upy.interpreters import CLIENT
from umotemq.chunks import ChunkClient
from umotemq.fmqp import FmqpClient
from umotemq.fragments import FragmentClient
from umotemq.lightmq import LightmqClient
from umotemq.link import Link
from umotemq.micromsg2 import MicroMsg2Client
from umotemq.tcp import Tcp

_PACKAGE = CLIENT / "umotemq"
_EXAMPLES = CLIENT / "examples"


def _stubtest(folder: Path, work: Path) -> tuple[int, str]:
    config = work / "stubtest.ini"
    # What is lent to CPython changes modules, which mypy cannot follow.
    config.write_text(
        "[mypy]\n[mypy-umotemq._cpython,umotemq._cpython_tls]\nignore_errors = True\n"
    )
    return run_module("mypy.stubtest", "umotemq", "--mypy-config-file", str(config), cwd=folder)


def test_the_stubs_are_the_code(tmp_path: Path) -> None:
    code, said = _stubtest(CLIENT, tmp_path)
    assert (code, "Success" in said) == (0, True), said


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("link.pyi", "timeout_ms: int = 10000", "timeout_ms: int = 9000"),
        ("fmqp.pyi", "def unsubscribe(self", "def unsubscribed(self"),
        ("wanted.pyi", "on_change: Callable[[bool], object] | None = None,", ""),
    ],
)
def test_other_stubs_would_be_noticed(file: str, right: str, wrong: str, tmp_path: Path) -> None:
    shutil.copytree(_PACKAGE, tmp_path / "umotemq")
    stub = tmp_path / "umotemq" / file
    text = stub.read_text()
    assert right in text
    stub.write_text(text.replace(right, wrong))
    code, said = _stubtest(tmp_path, tmp_path)
    assert (code, "error: " in said) == (1, True), said


def _fields(file: str, name: str) -> set[str]:
    """Return the annotated names of a class in a stub."""
    for node in ast.parse((_PACKAGE / file).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {
                field.target.id
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            }
    raise AssertionError(f"{file} has no class {name}")


def _options(client: type[Link]) -> set[str]:
    """Return what the constructor takes as a keyword: by the rule that it goes by itself."""
    names = (name for name in dir(client) if not name.startswith("_"))
    return {name for name in names if not callable(getattr(client, name))}


def test_every_option_is_known() -> None:
    link = _fields("link.pyi", "_LinkOptions")
    assert link == _options(Link)
    assert link | _fields("fmqp.pyi", "_FmqpOptions") == _options(FmqpClient)
    assert _options(FmqpClient) | _fields("chunks.pyi", "_ChunkOptions") == _options(ChunkClient)
    assert link | _fields("lightmq.pyi", "_LightmqOptions") == _options(LightmqClient)
    micromsg2 = _options(MicroMsg2Client) - {"properties"}  # which is no option but what was said
    assert link | _fields("micromsg2.pyi", "_MicroMsg2Options") == micromsg2
    fragments = micromsg2 | _fields("fragments.pyi", "_FragmentOptions")
    assert fragments == _options(FragmentClient) - {"properties"}


def test_every_attribute_is_known() -> None:
    """stubtest looks at classes only; these are what constructors set."""
    tcp = Tcp("127.0.0.1", 1)
    for client, file in (
        (FmqpClient(tcp), "fmqp.pyi"),
        (LightmqClient(tcp, b"kitchen"), "lightmq.pyi"),
        (MicroMsg2Client(tcp), "micromsg2.pyi"),
    ):
        known = _fields("link.pyi", "Link") | _fields(file, type(client).__name__)
        public = {name for name in vars(client) if not name.startswith("_")}
        assert public - known == set()
        assert {name for name in known if not hasattr(client, name)} == set()


def test_the_examples_are_typed(typings: Path) -> None:
    files = [
        str(path) for path in sorted(_EXAMPLES.rglob("*.py")) if path.name != "config.example.py"
    ]
    for group in ([f for f in files if "wifi_watchdog" not in f], files[-2:]):
        code, said = check_types(group, typings, typings)
        assert code == 0, said


_MISUSE = """
from umotemq.aio import Aio
from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

client = FmqpClient(Tcp("127.0.0.1", 8765), rx_sise=64)
client = FmqpClient(Tcp("127.0.0.1"))
client.publish(b"home", b"x", True)
client.subscribe(b"home", lambda topic: None)
client.subscribe(b"home", lambda topic, payload: None, raw=True)
async def main() -> None:
    async with Aio(client) as link:
        await link.do(client.unsubscribe, 5)
"""


def test_misuse_is_shown(typings: Path, tmp_path: Path) -> None:
    (tmp_path / "misuse.py").write_text(_MISUSE)
    _, said = check_types(["misuse.py"], tmp_path, typings)
    lines = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    assert lines == {6, 7, 8, 9, 10, 13}, said
