"""Addresses and the registry: what a protocol says of itself is all that they know of it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from host_broker import address as addresses
from host_broker.address import LISTEN_OPTIONS, AddressError, parse_address
from host_broker.net.listening.listen_error import ListenError
from host_broker.net.listening.listener import Listener
from host_broker.registry import protocols
from host_broker.settings import NetSettings

_OTHER = replace(
    protocols()["fmqp"],
    name="other",
    title="Other",
    port=4242,
    path="free",
    user=True,
    connect_options=("password_file",),
)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol with a user and a path of its own, as an installed package would bring it."""
    monkeypatch.setattr(addresses, "protocols", lambda: {**protocols(), "other": _OTHER})


@pytest.mark.usefixtures("other")
def test_a_user_and_words_of_the_protocols_own() -> None:
    address = parse_address("other://ann%40home@[::1]/queue/a%2Fb?password_file=/run/secret")
    assert (address.user, address.host, address.port) == ("ann@home", "::1", 4242)
    assert (address.words, address.client_id) == ("queue/a/b", "")
    assert address.options == {"password_file": "/run/secret"}
    assert str(address) == "other://[::1]:4242"
    assert parse_address("others://h").transport == "tls"
    unix = parse_address("other+unix:///run/x.sock?user=ann&path=queue")
    assert (unix.path, unix.user, unix.words, unix.options) == ("/run/x.sock", "ann", "queue", {})


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("fmqp://ann@h", "names a user, but FMQP has none"),
        ("other://ann:secret@h", "has a password; everybody who lists processes would see it"),
        ("other://h?client_id=x", "unknown option 'client_id'; other has: password_file"),
        ("other://h#x", "has more than protocol, host, port and path"),
        ("fmqp+unix:///x?client_id=a", "has a client_id, but only LightMQ, FMQP inside"),
        ("lightmq+unix:///x?path=a", "unknown option 'path'"),
        (
            "other+unix://ann@/x",
            "names no file; write e.g. other+unix:///run/motemq.sock?user=NAME",
        ),
        ("nothing://h", "unknown protocol 'nothing'; there are: fmqp, fmqps, fmqp+unix, lightmq,"),
        ("auto://h", "a client says which protocol it speaks: fmqp://h"),
    ],
)
def test_what_cannot_be_read_says_why(url: str, words: str) -> None:
    with pytest.raises(AddressError) as refused:
        parse_address(url)
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_listeners_have_more_schemes_and_other_options() -> None:
    assert parse_address("auto://127.0.0.1:1?slow=pause", LISTEN_OPTIONS).protocol == "auto"
    assert parse_address("https://127.0.0.1:1", LISTEN_OPTIONS).transport == "tls"
    with pytest.raises(AddressError, match="unknown option 'token_file'"):
        parse_address("lightmq://127.0.0.1?token_file=x", LISTEN_OPTIONS)


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("url", ["other://ann@127.0.0.1:0", "other://127.0.0.1:0/queue"])
def test_a_listener_has_neither_a_user_nor_a_path(url: str) -> None:
    address = parse_address(url, LISTEN_OPTIONS)
    with pytest.raises(ListenError, match="a listener has no client id, user or path"):
        Listener(address, NetSettings(), insecure=False)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("fmqp://127.0.0.1", True),
        ("fmqp://127.3.2.1", True),
        ("fmqp://localhost", True),
        ("fmqp://[::1]", True),
        ("fmqp+unix:///x", True),
        ("fmqp://192.0.2.1", False),
        ("fmqp://localhost.example", False),
    ],
)
def test_which_addresses_are_this_machine(url: str, local: bool) -> None:
    assert parse_address(url).local is local


def _package(folder: Path, value: str, code: str) -> None:
    """An installed package with an entry point for a protocol."""
    (folder / "plugin.py").write_text(code)
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[motemq.protocols]\nodd = {value}\n")


def _looked_up(folder: Path, name: str) -> str:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from host_broker.registry import RegistryError, protocols\n"
        "try: print(protocols()[sys.argv[2]].title)\n"
        "except RegistryError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), name], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_package_brings_a_protocol(tmp_path: Path) -> None:
    code = (
        "from host_broker.protocol import ProtocolSpec\n"
        "ODD = ProtocolSpec(\n"
        "    name='odd', title='Odd', journal_code=128, server=lambda settings, context: None\n"
        ")\n"
    )
    _package(tmp_path, "plugin:ODD", code)
    assert _looked_up(tmp_path, "odd") == "Odd"


@pytest.mark.parametrize("code", ["raise ValueError('broken')\n", "ODD = 5\n", "EVEN = 4\n"])
def test_a_broken_package_is_named(tmp_path: Path, code: str) -> None:
    _package(tmp_path, "plugin:ODD", code)
    said = _looked_up(tmp_path, "odd")
    assert "'odd'" in said
    assert "plugin (plugin:ODD)" in said
    assert _looked_up(tmp_path, "fmqp") == "FMQP"  # the others work


def test_a_command_says_which_package_is_broken(tmp_path: Path) -> None:
    _package(tmp_path, "plugin:ODD", "raise ValueError('broken')\n")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from motemq.cli import main; main()"
    argv = [sys.executable, "-c", code, str(tmp_path), "ping", "odd://127.0.0.1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "plugin (plugin:ODD) cannot be loaded: " in done.stderr
    assert "Traceback" not in done.stderr


def test_no_protocol_is_named_where_all_are_served() -> None:
    """A new protocol needs no line in there; docstrings and helps may show examples."""
    import ast

    root = Path(addresses.__file__).parent
    files = [root / "address.py", *(root / "client").glob("*.py"), *(root / "cli").glob("*.py")]
    named = []
    for file in files:
        if file.name == "broker.py":
            continue  # its help and its default are the broker's
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            words = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            words.append(getattr(node, "module", None) or "")
            if isinstance(node, ast.Compare):
                words += [
                    str(each.value)
                    for each in [node.left, *node.comparators]
                    if isinstance(each, ast.Constant)
                ]
            named += [f"{file.name}: {word}" for word in words if _names_a_protocol(word)]
    assert named == []


def _names_a_protocol(word: str) -> bool:
    return word in protocols() or any(f"protocols.{name}" in word for name in ("fmqp", "lightmq"))
