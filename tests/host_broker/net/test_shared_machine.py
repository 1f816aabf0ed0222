"""The broker's files on a machine with other users: what they planted is not followed, and what is
written is for the broker's user only; secrets are in none of it."""

import contextlib
import hashlib
import mmap
import os
import resource
import signal
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import Refused, connect
from host_broker.net.storage.data_dir import DataDir, DataDirError
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq

_NOBODY = 65534
_CANARY = "canary-5f0c2e77d1"


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.fail("these tests act as another user, which only root can")


def _packet(flags: int, topic: bytes, body: bytes) -> bytes:
    return struct.pack(">BBI", flags, len(topic), len(body)) + topic + body


def _use(running: BrokerProcess) -> None:
    with connect(f"fmqp://127.0.0.1:{running.ports['auto']}") as client:
        client.publish("home/lamp", b"on", retain=True)
        client.sync()


def test_what_is_written_is_for_its_user_only_whatever_the_umask(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ("--data", str(data), "--listen", "auto://127.0.0.1:0")
    with broker(*options, shell_prefix="umask 000;") as running:
        _use(running)
        seen = {path: path.stat() for path in (data, *data.rglob("*"))}
        assert running.end() == (0, "")
    seen |= {path: path.stat() for path in (data, *data.rglob("*"))}
    assert {path.name for path in seen} >= {
        *("broker.lock", "retained.sqlite", "retained.sqlite-wal", "journal.json", "p0000"),
        "staged",
    }
    for path, status in seen.items():
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        assert stat.S_IMODE(status.st_mode) == wanted, path


def test_what_an_older_broker_has_left_open_is_closed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "journal").mkdir(parents=True)
    (data / "published.json").write_text("{}")
    for path in (data, data / "journal"):
        path.chmod(0o755)
    DataDir(data).release()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "journal").stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "published.json").stat().st_mode) == 0o600


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    data = tmp_path / "data"
    data.mkdir()
    (data / "broker.lock").symlink_to(precious)
    with pytest.raises(DataDirError, match="symbolic link"):
        DataDir(data)
    done = subprocess.run(
        motemq("broker", "--data", str(data), "--listen", "auto://127.0.0.1:0"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "broker.lock in it is a symbolic link" in done.stderr
    assert "Traceback" not in done.stderr
    assert precious.read_text() == "precious"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("planted", ["retained.sqlite", "published.json", "journal/staged.new"])
def test_what_another_user_planted_in_an_open_folder_is_refused(
    planted: str, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    data = tmp_path / "data"
    (data / "journal").mkdir(parents=True)
    (data / planted).symlink_to(precious)
    os.lchown(data / planted, _NOBODY, _NOBODY)
    with pytest.raises(DataDirError, match=f"belongs to user {_NOBODY}"):
        DataDir(data)
    assert precious.read_text() == "precious"


@pytest.mark.usefixtures("root")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, _NOBODY, _NOBODY)
    with pytest.raises(DataDirError, match="chown -R"):
        DataDir(data)
    assert list(data.iterdir()) == []


@pytest.fixture
def secrets(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A token's file, and settings with its hash for HTTP and for a board."""
    token = tmp_path / "token"
    token.write_text(_CANARY + "\n")
    digest = hashlib.sha256(_CANARY.encode()).hexdigest()
    config = tmp_path / "broker.toml"
    config.write_text(
        f'[http]\ntoken = "sha256:{digest}"\n[lightmq.clients]\nkitchen = "sha256:{digest}"\n'
    )
    yield token, config


def test_a_token_is_in_nothing_that_is_written(secrets: tuple[Path, Path], tmp_path: Path) -> None:
    """Right ones and wrong ones; at the broker's side and at the client's."""
    token, config = secrets
    data = tmp_path / "data"
    written = []
    options = ("--data", str(data), "--config", str(config), "--listen", "auto://127.0.0.1:0")
    with broker(*options, "-v", "--log-format", "json") as running:
        port = running.ports["auto"]
        url = f"lightmq://127.0.0.1:{port}/kitchen?token_file={token}"
        with connect(url) as board:
            board.publish("up", b"x")
        for wrong in (f"kitchen:{_CANARY}x", f"hall:{_CANARY}", f":{_CANARY}"):
            with pytest.raises(Refused) as refused, connect(f"lightmq://127.0.0.1:{port}/{wrong}"):
                pass
            written.append(str(refused.value))
        for header in (f"Bearer {_CANARY}x", f"Basic {_CANARY}", f"{_CANARY}"):
            with running.raw("auto") as http:
                http.sendall(
                    b"GET /stats HTTP/1.0\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n"
                    % header.encode()
                )
                with contextlib.suppress(ConnectionResetError):
                    while answer := http.recv(65536):
                        written.append(answer.decode())
        http_url = f"http://127.0.0.1:{port}"
        commands = [
            ("backup", str(tmp_path / "b"), "--from", http_url, "--token-file", str(token)),
            ("ping", f"lightmq://127.0.0.1:{port}/hall?token_file={token}"),
            ("doctor", "broker", "--config", str(config), "--data", str(data)),
            ("broker", "--check-config", "--config", str(config)),
        ]
        for command in commands:
            done = subprocess.run(motemq(*command), capture_output=True, text=True, timeout=60)
            written.append(done.stdout + done.stderr)
        process = Path(f"/proc/{running.process.pid}")
        written += [(process / name).read_text() for name in ("cmdline", "environ")]
        code, said = running.end()
        written.append(said)
        assert code == 0
    assert "lightmq.clients has no such client" in said  # it was told who came
    assert not [text for text in written if _CANARY in text]
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != token:
            assert _CANARY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("allowed", "raised"), [("", False), ("", True), ("MOTEMQ_CORE_DUMPS=1", False)]
)
def test_a_crash_leaves_no_secret(
    secrets: tuple[Path, Path], tmp_path: Path, allowed: str, raised: bool
) -> None:
    """No core dump at all; one that is written in spite of that (``raised``: somebody has lifted
    the limit, or a crash reporter does not heed it) has nothing of the memory. The last case shows
    that the secret would have been there."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    token, config = secrets
    where = tmp_path / "crashed"
    where.mkdir()
    running = BrokerProcess(
        *("--config", str(config), "--listen", "auto://127.0.0.1:0", "--ephemeral"),
        # Commands that were called in this process have taken away its own right to dump.
        shell_prefix=(
            f"cd {where}; ulimit -c $(ulimit -H -c); echo 0x33 > /proc/$$/coredump_filter; "
            f"{allowed and f'export {allowed};'}"
        ),
    )
    process = Path(f"/proc/{running.process.pid}")
    url = f"lightmq://127.0.0.1:{running.ports['auto']}/kitchen?token_file={token}"
    with connect(url) as board:
        # What is in the last read, an answer and an outbox is in the memory of a broker.
        board.publish("up", b"%s %s" % (_CANARY.encode(), bytes(200)))
        board.sync()
        soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_CORE)
        assert bool(allowed) == bool(soft)
        assert bool(allowed) == bool(int((process / "coredump_filter").read_text(), 16))
        if raised:
            resource.prlimit(running.process.pid, resource.RLIMIT_CORE, (hard, hard))
        running.end(signal.SIGSEGV)
    assert running.process.returncode == -signal.SIGSEGV
    found = list(where.iterdir())
    if hard and "/" not in pattern and not pattern.startswith("|"):  # else they are elsewhere
        assert bool(found) == (bool(allowed) or raised)
        assert any(_holds(path, _CANARY.encode()) for path in found) == bool(allowed)


def _holds(path: Path, what: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        return memory.find(what) >= 0


def test_a_wrong_setting_does_not_repeat_a_secret(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    for text in (
        f'[http]\ntoken = "{_CANARY}"\n',
        f'[lightmq.clients]\nkitchen = "{_CANARY}"\n',
        f'[http]\ntokn = "{_CANARY}"\n',
    ):
        config.write_text(text)
        done = subprocess.run(
            motemq("broker", "--check-config", "--config", str(config)),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2, done.stderr
        assert _CANARY not in done.stdout + done.stderr
        assert "token" in done.stderr or "kitchen" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("key", ["http.token", "http.tokn", "http.pasword", "lightmq.clients"])
def test_a_secret_on_the_command_line_is_not_said_again(key: str) -> None:
    done = subprocess.run(
        motemq("broker", "--check-config", "--set", f"{key}={_CANARY}"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert _CANARY not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
