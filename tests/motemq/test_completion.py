"""Tab in real shells: commands, topics from the broker, clients that can be called, boards."""

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
_BRACKETED_PASTE = b"\x1b[?2004h"  # with which zsh ends its prompt


def _environment(home: Path) -> dict[str, str]:
    binaries = Path(sys.executable).parent
    return {
        "HOME": str(home),
        "PATH": f"{binaries}:/usr/bin:/bin",
        "PS1": _PROMPT.decode(),
        "TERM": "dumb",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # the sources that are tested
    }


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0") as process:
        yield process


class Shell:
    """A shell in whose home completion was installed by the one command, twice."""

    def __init__(self, name: str, home: Path) -> None:
        self._name = name
        self._environment = _environment(home)
        self._home = home
        for _ in range(2):  # the second time changes nothing
            done = subprocess.run(
                ["motemq", "completion", name, "--install"],
                env=self._environment,
                capture_output=True,
                timeout=END_S,
            )
            assert done.returncode == 0, done.stderr

    def completes(self, typed: str, expected: str, folder: Path | None = None) -> None:
        """Type this and press Tab: ``expected`` is on the line then."""
        if self._name == "fish":
            self._asked(typed, expected, folder)
        else:
            self._typed(typed, expected, folder)

    def goes_on(self, typed: str, expected: str) -> None:
        """Type this and press Tab twice: the second time completes what the first one gave."""
        if self._name != "fish":
            self._typed(typed, expected, None, tabs=2)

    def _asked(self, typed: str, expected: str, folder: Path | None) -> None:
        """fish says what Tab would give, one a line, with what it means behind a tab."""
        ask = ["fish", "--command", "complete --do-complete $argv[1]", typed]
        done = subprocess.run(
            ask, env=self._environment, cwd=folder, capture_output=True, text=True, timeout=END_S
        )
        before, _, word = typed.rpartition(" ")
        lines = [f"{before} {line.partition(chr(9))[0]} " for line in done.stdout.splitlines()]
        assert any(expected in line for line in lines), (done.stdout, done.stderr, word)

    def _typed(self, typed: str, expected: str, folder: Path | None, tabs: int = 1) -> None:
        screen, inside = pty.openpty()
        shell = subprocess.Popen(
            {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-i"]}[self._name],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=self._environment,
            cwd=folder,
            start_new_session=True,
        )
        os.close(inside)
        try:
            read_until(screen, _is_ready)
            if self._name == "bash":  # which bash-completion would do
                script = self._home / ".local/share/bash-completion/completions/motemq"
                os.write(screen, f". {script}\n".encode())
                read_until(screen, _is_ready)
            os.write(screen, f"{typed}\t".encode())
            for _ in range(1, tabs):
                read_until(screen, lambda data: data.rstrip(b"'\"").endswith(b"/"))
                os.write(screen, b"\t")
            read_until(screen, lambda data: expected.encode() in data)
        finally:
            shell.kill()
            shell.wait(END_S)
            os.close(screen)


def _is_ready(screen: bytes) -> bool:
    return screen.removesuffix(_BRACKETED_PASTE).endswith(_PROMPT)


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(request.param, tmp_path_factory.mktemp(request.param))


def test_commands(shell: Shell) -> None:
    shell.completes("motemq pip", "motemq pipeline ")


def test_addresses(shell: Shell) -> None:
    shell.completes("motemq sub fmqp://127", "motemq sub fmqp://127.0.0.1:8765")


def test_topics_from_the_broker(shell: Shell, running: BrokerProcess) -> None:
    url = running.urls["auto"].replace("auto", "fmqp")
    with connect(url) as client:
        client.publish("greenhouse/north/temperature", b"21", retain=True, confirm=True)
    shell.completes(f"motemq sub {url} green", f"sub {url} greenhouse/")
    shell.completes(f"motemq sub {url} greenhouse/no", "greenhouse/north/")
    shell.completes(f"motemq sub {url} greenhouse/north/", "greenhouse/north/temperature ")


def test_topics_of_several_words(shell: Shell, running: BrokerProcess) -> None:
    """Within quotes they are as they are; names that no line can have are left out."""
    url = running.urls["auto"].replace("auto", "fmqp")
    with connect(url) as client:
        client.publish("wine cellar/door", b"1", retain=True)
        client.publish("hall/old\nname", b"1", retain=True)
        client.publish("hall/lamp", b"1", retain=True, confirm=True)
    shell.goes_on(f"motemq sub {url} 'wine c", "door")
    shell.goes_on(f"motemq sub {url} 'wine ", "door")
    shell.goes_on(f"motemq sub {url} wine", "door")
    shell.completes(f"motemq sub {url} hall/", "hall/lamp ")
    shell.completes(f"motemq sub {url.replace('fmqp', 'micromsg2')} topic/ha", "topic/hall/")


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_clients_that_can_be_called(shell: Shell, running: BrokerProcess, protocol: str) -> None:
    url = running.urls["auto"].replace("auto", protocol)
    with connect(running.urls["auto"].replace("auto", "lightmq") + "/kitchen-board"):
        shell.completes(f"motemq call {url} kitch", "kitchen-board ")


def test_boards_of_the_rig(shell: Shell, tmp_path: Path) -> None:
    write_rig(tmp_path)
    board = 'id = "kiln"\nmodel = "RPI_PICO_W"\nserial_url = "socket://127.0.0.1:1"\n'
    board += '[identity]\nuid = "e6614c311b4c6f2a"\n'
    (tmp_path / "boards" / "kiln.toml").write_text(board)
    assert motemq_rig("list", "--rig", tmp_path / "rig.toml").returncode == 0
    shell.completes("motemq rig power ki", "motemq rig power kiln ", tmp_path)
    shell.completes("motemq rig run --board k", "--board kiln ", tmp_path)


def test_a_shell_that_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    environment = {**_environment(tmp_path), "SHELL": "/bin/dash"}
    done = subprocess.run(
        ["motemq", "completion"], env=environment, capture_output=True, text=True, timeout=END_S
    )
    assert done.returncode == 2
    assert "which shell?" in done.stderr
