"""Tab in a real bash: commands, topics from the broker, clients that can be called, boards."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import connect
from tests.boards.desk_files import motemq_rig, write_rig
from tests.host_broker.cli.processes import END_S, read_until
from tests.host_broker.net.broker_process import BrokerProcess, broker

_PROMPT = b"ready> "


def _environment(home: Path) -> dict[str, str]:
    binaries = Path(sys.executable).parent
    return {
        "HOME": str(home),
        "PATH": f"{binaries}:/usr/bin:/bin",
        "PS1": _PROMPT.decode(),
        "TERM": "dumb",
    }


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0") as process:
        yield process


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which completion was installed by the one command."""
    home = tmp_path_factory.mktemp("home")
    for _ in range(2):  # the second time changes nothing
        done = subprocess.run(
            ["motemq", "completion", "bash", "--install"],
            env=_environment(home),
            capture_output=True,
            timeout=END_S,
        )
        assert done.returncode == 0, done.stderr
    return home


def _completed(home: Path, typed: str, expected: str, folder: Path | None = None) -> None:
    """Type into an interactive bash, press Tab, and wait until ``expected`` is on the line."""
    screen, inside = pty.openpty()
    script = home / ".local/share/bash-completion/completions/motemq"
    shell = subprocess.Popen(
        ["bash", "--norc", "-i"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=_environment(home),
        cwd=folder,
        start_new_session=True,
    )
    os.close(inside)
    try:
        read_until(screen, lambda data: data.endswith(_PROMPT))
        os.write(screen, f". {script}\n".encode())
        read_until(screen, lambda data: data.endswith(_PROMPT))
        os.write(screen, f"{typed}\t".encode())
        read_until(screen, lambda data: expected.encode() in data)
    finally:
        shell.kill()
        shell.wait(END_S)
        os.close(screen)


def test_commands(home: Path) -> None:
    _completed(home, "motemq pip", "motemq pipeline ")


def test_addresses(home: Path) -> None:
    _completed(home, "motemq sub fmqp://127", "motemq sub fmqp://127.0.0.1:8765")


def test_topics_from_the_broker(home: Path, running: BrokerProcess) -> None:
    url = running.urls["auto"].replace("auto", "fmqp")
    with connect(url) as client:
        client.publish("greenhouse/north/temperature", b"21", retain=True, confirm=True)
    _completed(home, f"motemq sub {url} green", f"sub {url} greenhouse/")
    _completed(home, f"motemq sub {url} greenhouse/no", "greenhouse/north/")
    _completed(home, f"motemq sub {url} greenhouse/north/", "greenhouse/north/temperature ")


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_clients_that_can_be_called(home: Path, running: BrokerProcess, protocol: str) -> None:
    url = running.urls["auto"].replace("auto", protocol)
    with connect(running.urls["auto"].replace("auto", "lightmq") + "/kitchen-board"):
        _completed(home, f"motemq call {url} kitch", "kitchen-board ")


def test_boards_of_the_rig(home: Path, tmp_path: Path) -> None:
    write_rig(tmp_path)
    board = 'id = "kiln"\nmodel = "RPI_PICO_W"\nserial_url = "socket://127.0.0.1:1"\n'
    board += '[identity]\nuid = "e6614c311b4c6f2a"\n'
    (tmp_path / "boards" / "kiln.toml").write_text(board)
    assert motemq_rig("list", "--rig", tmp_path / "rig.toml").returncode == 0
    _completed(home, "motemq rig power ki", "motemq rig power kiln ", tmp_path)
    _completed(home, "motemq rig run --board k", "--board kiln ", tmp_path)


def test_scripts_for_the_other_shells(tmp_path: Path) -> None:
    for shell, file in (
        ("zsh", ".local/share/motemq/zsh/_motemq"),
        ("fish", ".config/fish/completions/motemq.fish"),
    ):
        done = subprocess.run(
            ["motemq", "completion", shell, "--install"],
            env=_environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=END_S,
        )
        assert done.returncode == 0, done.stderr
        assert "motemq" in (tmp_path / file).read_text()
    assert "compinit" in (tmp_path / ".zshrc").read_text()


def test_a_shell_that_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    environment = {**_environment(tmp_path), "SHELL": "/bin/dash"}
    done = subprocess.run(
        ["motemq", "completion"], env=environment, capture_output=True, text=True, timeout=END_S
    )
    assert done.returncode == 2
    assert "which shell?" in done.stderr
