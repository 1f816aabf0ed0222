"""What runs a broker besides HTTP: --check-config, doctor, JSON log, systemd's unit."""

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from host_broker.cli.service_manager import hidden, out_of_reach
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, until
from tests.host_broker.net.certificates import Authority

_AUTO = ("--listen", "auto://127.0.0.1:0")


def _run(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        motemq(*command),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


# ---- broker --check-config ----


def test_a_right_configuration_is_said_to_be_right_and_nothing_is_made(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[bus]\nmax_body = 1000\n")
    done = _run("broker", "--check-config", "--config", str(config), "--data", str(tmp_path / "d"))
    assert done.returncode == 0, done.stderr
    assert "configuration is right" in done.stdout
    assert not (tmp_path / "d").exists()


def test_a_configuration_is_checked_while_a_broker_has_the_port(tmp_path: Path) -> None:
    with broker(*_AUTO, "--ephemeral") as running:
        listen = f"auto://127.0.0.1:{running.ports['auto']}"
        assert _run("broker", "--check-config", "--listen", listen).returncode == 0
        assert running.end() == (0, "")


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("[bus]\nmax_bodi = 1\n", (), "unknown key 'bus.max_bodi'"),
        ("[bus\n", (), "is not TOML"),
        ("", ("--listen", "autos://127.0.0.1:0"), "needs a certificate and its key"),
        ("", ("--listen", "fmqp://0.0.0.0:0"), "can be reached from other machines"),
        ("", ("--listen", "auto+unix:///no/such/folder/s"), "its folder is not there"),
        ('[access]\nusers = "/no/such/file"\n', (), "cannot read /no/such/file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    text: str, arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(text)
    done = _run("broker", "--check-config", "--config", str(config), *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


# ---- doctor ----


def _findings(*arguments: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    done = _run("doctor", "broker", "--json", *arguments)
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(done.stdout)["findings"]:
        found.setdefault(each["about"], []).append((each["level"], each["text"]))
    return done.returncode, found


def test_doctor_finds_a_broker_that_runs_and_what_it_keeps(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker(*_AUTO, "--data", str(data)) as running:
        listen = f"auto://127.0.0.1:{running.ports['auto']}"
        code, found = _findings("--listen", listen, "--data", str(data))
        assert code == 0, found
        assert found["broker"][0][0] == "ok"
        assert any("used by a broker that runs" in text for _, text in found["data"])
        assert running.end() == (0, "")
    code, found = _findings("--listen", listen, "--data", str(data))
    assert code == 0
    assert found["port"] == [("ok", f"{running.ports['auto']} is free")]


def test_doctor_says_who_has_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = _run("doctor", "broker", "--listen", f"fmqp://127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"FAIL  port: {port} is in use by" in done.stdout
    assert "have the broker listen elsewhere" in done.stdout


def test_doctor_looks_at_certificates_settings_and_folders(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    listen = f"autos://127.0.0.1:0?cert={cert}&key={key}"
    file = tmp_path / "file"
    file.write_text("")
    code, found = _findings("--listen", listen, "--data", str(file), "--set", "net.max_bodies=1")
    assert code == 1
    assert "is valid until" in found["certificate"][0][1]
    assert found["settings"][0][0] == "failure"
    assert ("failure", f"{file} is no folder") in found["data"]


def test_doctor_finds_a_damaged_journal(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker(*_AUTO, "--data", str(data), "--set", "journal.segment_bytes=1") as running:
        with running.raw("auto") as publisher:
            for number in range(1, 4):
                publisher.sendall(b"\0\1\0\0\0\1tx")
                until(lambda: len(list(data.rglob("*.mjl"))) == number)  # noqa: B023
        running.end()
    code, found = _findings("--data", str(data))
    assert code == 0, found
    assert "all of them whole" in found["journal"][0][1]
    segment = min(data.rglob("*.mjl"))
    segment.write_bytes(segment.read_bytes()[:-1] + b"\xff")
    code, found = _findings("--data", str(data))
    assert code == 1
    assert found["journal"][0][0] == "failure"


# ---- the log ----


def test_the_log_as_json_is_one_object_a_line_and_harmless(tmp_path: Path) -> None:
    with broker(*_AUTO, "--ephemeral", "--log-format", "json", "-v") as running:
        name = "evil\x1b]0;owned\x07\u202e".encode()
        with running.raw("auto") as board:
            board.sendall(bytes([1]) + (len(name)).to_bytes(2, "big") + name)
            board.recv(100)
        running.process.send_signal(signal.SIGHUP)
        code, said = running.end()
    assert code == 0
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"ts", "level", "logger", "pid", "message"} <= set(lines[0])
    assert all(line["pid"] == running.process.pid for line in lines)
    for line in lines:
        assert line["ts"].endswith("Z")
        assert all(letter.isprintable() for letter in line["message"])


# ---- systemd ----


def test_the_unit_names_this_program_and_systemd_accepts_it(tmp_path: Path) -> None:
    done = _run("broker", "--print-systemd-unit")
    assert done.returncode == 0
    assert "@MOTEMQ@" not in done.stdout
    unit = tmp_path / "motemq-broker.service"
    unit.write_text(done.stdout)
    assert "--check-config" not in done.stdout  # what is wrong is not tried again and again:
    assert "RestartPreventExitStatus=2" in done.stdout
    assert "StartLimitIntervalSec=0" in done.stdout
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert "NoNewPrivileges=yes" in done.stdout  # as far as can be told without systemd
        return
    verified = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    ours = [line for line in verified.stderr.splitlines() if "motemq-broker" in line]
    assert ours == []
    assert verified.returncode == 0, verified.stderr
    rated = subprocess.run(
        [analyze, "security", "--offline=yes", "--threshold=30", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SYSTEMD_PAGER": "cat"},
    )
    assert rated.returncode == 0, rated.stdout[-2000:]


def test_an_installation_that_the_unit_cannot_reach_is_told(tmp_path: Path) -> None:
    open_one, closed = tmp_path / "open", tmp_path / "closed"
    for folder in (open_one, closed):
        folder.mkdir()
        (folder / "motemq").write_text("")
    for parent in tmp_path.parents:
        if str(parent).startswith("/tmp/pytest"):
            parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    open_one.chmod(0o711)
    closed.chmod(0o700)
    assert hidden([open_one / "motemq"]) == ""
    assert hidden([closed / "motemq"]).endswith(f"is in {closed}, which others may not enter")
    (open_one / "python").symlink_to(closed / "motemq")
    assert "others may not enter" in hidden([open_one / "python"])
    assert hidden([Path("/root/venv/bin/motemq")]) == "/root/venv/bin/motemq is in /root"
    done = _run("broker", "--print-systemd-unit")
    assert ("warning: the unit's user cannot run" in done.stderr) == bool(out_of_reach())


def test_json_is_all_that_a_json_log_has() -> None:
    """Also what is said at the start."""
    running = BrokerProcess(*_AUTO, "--log-format", "json")
    code, said = running.end()
    assert code == 0
    (line,) = map(json.loads, said.splitlines())
    assert line["message"].startswith("no --data folder given")


def test_systemd_is_told_when_the_broker_is_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        process = subprocess.Popen(
            motemq("broker", "--ephemeral", *_AUTO),
            stdout=subprocess.PIPE,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        try:
            assert manager.recv(100) == b"READY=1"
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_the_broker_runs_under_the_limits_of_the_unit(tmp_path: Path) -> None:
    """What can be had of them without systemd: no capabilities, no new ones, another user, no
    executable memory that is written to, a private umask."""
    if shutil.which("setpriv") is None or shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.fail("setpriv and unshare (util-linux) and root are needed to take rights away")
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and str(parent).startswith("/tmp/pytest"):
            parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    # The clone may be in a folder that only root may enter, such as /root.
    prefix = (
        "mount --bind . /mnt; cd /mnt; "
        "exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "
        '--bounding-set=-all --inh-caps=-all "$@";'
    )
    _, *words = motemq("broker", "--data", str(folder / "data"), *_AUTO)
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-ec", prefix, "sh", "/mnt/.venv/bin/python", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(b"listening auto"), process.communicate(timeout=60)
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "CapBnd:\t0000000000000000" in status
    finally:
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert (folder / "data" / "journal").is_dir()
