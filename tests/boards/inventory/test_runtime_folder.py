"""Another user of the machine plants files where we look for ours: nothing of it is believed.

As root the other user is ``nobody``; without root nobody else's file can be made, so root is asked.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.bridge.status import StatusError, StatusServer, ask_all
from boards.inventory.rig_file import load_rig, virtual_rig
from boards.runtime_folder import Untrusted, check_private, make_private, runtime_folder

_NOBODY = 65534
_POWER = """\
id = "planted"
model = "RPI_PICO"
[usb]
serial = "1234"
[identity]
uid = "e66118604b6b8d2a"
[power]
driver = "command"
on = ["touch", "{mark}"]
off = ["touch", "{mark}"]
"""

As = Callable[[Callable[[], object]], None]


@pytest.fixture
def world() -> Iterator[Path]:
    """A folder in which everybody may put things, as ``/tmp`` is."""
    if os.geteuid() != 0:
        pytest.fail("these tests act as another user, which only root can")
    made = subprocess.run(["mktemp", "-d", "/tmp/motemq-test-XXXXXX"], capture_output=True)
    folder = Path(made.stdout.decode().strip())
    folder.chmod(0o1777)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def as_nobody() -> Iterator[As]:
    """Do something as another user of this machine."""

    def act(what: Callable[[], object]) -> None:
        os.seteuid(_NOBODY)
        try:
            what()
        finally:
            os.seteuid(0)

    yield act


def _plant(desk: Path, mark: Path) -> None:
    desk.mkdir(parents=True)
    (desk / "planted.toml").write_text(_POWER.format(mark=mark))


def test_a_board_file_in_a_folder_that_another_user_made_is_refused(
    world: Path, as_nobody: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = world / "motemq-0"
    as_nobody(lambda: _plant(runtime / "desk", world / "mark"))
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(runtime))
    with pytest.raises(Untrusted, match=f"belongs to user {_NOBODY}"):
        virtual_rig()
    command = [sys.executable, "-m", "motemq", "rig", "power", "planted", "off"]
    ran = subprocess.run(command, capture_output=True, cwd=world, text=True)
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert "not believed" in ran.stdout + ran.stderr
    assert not (world / "mark").exists()


def test_a_link_to_another_folder_is_not_followed(
    world: Path, as_nobody: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = world / "ours"
    _plant(ours / "desk", world / "mark")
    ours.chmod(0o700)
    as_nobody(lambda: (world / "motemq-0").symlink_to(ours))
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(world / "motemq-0"))
    with pytest.raises(Untrusted, match="symbolic link"):
        virtual_rig()
    with pytest.raises(Untrusted, match="symbolic link"):
        make_private(world / "motemq-0")


def test_a_folder_below_one_of_another_user_is_refused(world: Path, as_nobody: As) -> None:
    as_nobody(lambda: (world / "theirs").mkdir(mode=0o777))
    with pytest.raises(Untrusted, match="who could put anything there"):
        make_private(world / "theirs" / "motemq")
    assert not (world / "theirs" / "motemq").exists()


def test_a_folder_to_which_others_can_write_is_refused(world: Path) -> None:
    folder = world / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Untrusted, match="others can write"):
        check_private(folder)
    (folder / "inner").mkdir(mode=0o700)
    with pytest.raises(Untrusted, match="others can write"):
        check_private(folder / "inner")


def test_a_folder_of_ours_is_closed_to_readers(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_desk_does_not_run_power_commands_of_others(world: Path, as_nobody: As) -> None:
    """Not in a desk of ours either, into which somebody else could write."""
    desk = world / "desk"
    (desk / "boards").mkdir(parents=True)
    (desk / "rig.toml").write_text("")
    (desk / "boards").chmod(0o1777)
    file = desk / "boards" / "planted.toml"
    as_nobody(lambda: file.write_text(_POWER.format(mark=world / "mark")))
    with pytest.raises(Untrusted, match=f"belongs to user {_NOBODY}"):
        load_rig(desk / "rig.toml")
    os.chown(file, 0, 0)
    file.chmod(0o646)
    with pytest.raises(Untrusted, match="others can write to it"):
        load_rig(desk / "rig.toml")
    file.chmod(0o644)
    assert load_rig(desk / "rig.toml").boards["planted"].power.driver == "command"


def test_a_lock_that_is_a_link_is_not_followed(world: Path, as_nobody: As) -> None:
    from boards.inventory.locks import BoardLock

    precious = world / "precious"
    precious.write_text("precious")
    (world / "locks").mkdir()
    (world / "locks").chmod(0o777)  # not as /tmp, where the kernel itself refuses
    as_nobody(lambda: (world / "locks" / "pico.lock").symlink_to(precious))
    with pytest.raises(OSError, match="symbolic links"):
        BoardLock.take(world, "pico", "a test")
    assert precious.read_text() == "precious"


def test_a_bridge_neither_answers_nor_asks_in_a_folder_of_others(
    world: Path, as_nobody: As
) -> None:
    as_nobody((world / "run").mkdir)
    with pytest.raises(StatusError, match="belongs to user"), StatusServer(world / "run", dict):
        pass
    # Root asks anybody's bridges, where only their user can have made the sockets.
    (world / "run").chmod(0o777)
    with pytest.raises(StatusError, match="others can write"):
        ask_all(world / "run")


def test_one_variable_names_the_folder_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", "/somewhere")
    assert runtime_folder() == Path("/somewhere")
    monkeypatch.delenv("MOTEMQ_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/xdg")
    assert runtime_folder() == Path("/xdg/motemq")
    monkeypatch.setenv("MOTEMQ_RUNTIME", "/old")
    with pytest.raises(Untrusted, match="MOTEMQ_RUNTIME_DIR now"):
        runtime_folder()


def test_a_system_without_such_folders_is_no_warning(tmp_path: Path) -> None:
    """As in a container, or in cron: what is taken then is a folder for temporary files."""
    code = "from boards.runtime_folder import runtime_folder\nprint(runtime_folder())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.strip().endswith("motemq")
