"""What a board lacks to reach its broker is said before anything is written, or any check fails."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.repl import Repl
from boards.session.reachable import Unreachable, require_reachable
from tests.boards.desk_files import motemq_rig, write_rig
from tests.boards.fault_boards import UnixBoard
from tests.boards.rig_process import Broker, outcomes, run_rig

_UID = "0123456789abcdef"


@pytest.fixture
def repl(tmp_path: Path, unix_port: Path) -> Iterator[Repl]:
    with UnixBoard(unix_port, tmp_path) as board, Repl.open(board.url, deadline_s=60) as repl:
        yield repl


def test_a_board_that_reaches_its_broker_closes_again(repl: Repl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(60)
        require_reachable(repl, ("127.0.0.1", broker.getsockname()[1]))
        connection, _ = broker.accept()
        with connection:
            connection.settimeout(60)
            assert connection.recv(1) == b""


def test_a_board_that_does_not_is_told_where_to_look(repl: Repl) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        with pytest.raises(Unreachable, match=f"its broker at 127.0.0.1:{port}.*ECONNREFUSED"):
            require_reachable(repl, ("127.0.0.1", port))


@pytest.mark.parametrize(
    ("model", "link", "words"),
    [
        (
            "RPI_PICO",
            'transport = "uart"',
            "wire GPIO 4 (its TX) to RX, GPIO 5 (its RX) to TX and GND to GND",
        ),
        ("RPI_PICO_W", "", "it reaches its broker by Wi-Fi, and rig.toml names none"),
    ],
)
def test_a_board_without_a_way_to_the_broker_is_not_touched(
    broker: Broker, tmp_path: Path, model: str, link: str, words: str
) -> None:
    """Nobody listens at its console: to touch it would be another error."""
    rig, out = write_rig(tmp_path), tmp_path / "out"
    (tmp_path / "boards" / "p1.toml").write_text(
        f'id = "p1"\nmodel = "{model}"\nserial_url = "socket://127.0.0.1:1"\n'
        f'[identity]\nuid = "{_UID}"\n[flash]\nimage = "rpi_pico"\n'
        f"[link]\n{link}\n"
    )
    result = run_rig(out, broker, "--rig", str(rig), "--checks", "ping")
    assert result.returncode == 3, result.stdout
    assert words in result.stdout
    assert "nothing was written" in result.stdout
    assert outcomes(out, "p1", "step_finished", "step")["start"] == "error"
    doctor = motemq_rig("doctor", "--rig", rig)
    assert doctor.returncode == 3
    assert words in doctor.stdout
