"""``motemq firmware`` as a person meets it: paths on stdout, one line of error, exit codes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def _firmware(
    *arguments: str, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "motemq", "firmware", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **(env or {})},
    )


def _one_line_error(done: "subprocess.CompletedProcess[str]", code: int = 1) -> str:
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return line


def test_build_prints_the_path_only(unix_port: Path) -> None:
    done = _firmware("build", "unix")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{unix_port}\n", "")


def test_path_prints_what_was_built(unix_port: Path) -> None:
    assert _firmware("path", "unix").stdout == f"{unix_port}\n"


def test_path_builds_nothing(tmp_path: Path) -> None:
    done = _firmware("path", "unix", env={"MOTEMQ_CACHE": str(tmp_path)})
    assert "build it with: motemq firmware build unix" in _one_line_error(done)
    assert list(tmp_path.iterdir()) == []


def test_list_tells_what_is_built(unix_port: Path, tmp_path: Path) -> None:
    (unix,) = [line for line in _firmware("list").stdout.splitlines() if line.startswith("unix ")]
    assert unix.split()[1] == "built"
    empty = _firmware("list", env={"MOTEMQ_CACHE": str(tmp_path)}).stdout.splitlines()
    assert [line.split()[0] for line in empty] == [
        "unix",
        "unix32",
        "unix126",
        "rpi_pico",
        "vesp32",
        "vpico_w",
    ]
    assert all("not built" in line for line in empty)


@pytest.mark.parametrize("words", [("build", "unix", "esp9000"), ("path", "esp9000")])
def test_an_unknown_name_is_wrong_usage_and_nothing_is_built(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    error = _one_line_error(_firmware(*words, env={"MOTEMQ_CACHE": str(tmp_path)}), code=2)
    assert (
        "'esp9000' is not one of 'unix', 'unix32', 'unix126', 'rpi_pico', 'vesp32', 'vpico_w'"
        in error
    )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_is_named_before_anything_is_fetched(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("make", "cmake", "python3"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    env = {"MOTEMQ_CACHE": str(tmp_path / "cache"), "PATH": str(tools)}
    error = _one_line_error(_firmware("build", "rpi_pico", env=env))
    assert "needs arm-none-eabi-gcc" in error
    assert "sudo apt-get install gcc-arm-none-eabi" in error
    assert not (tmp_path / "cache" / "micropython-source").exists()


def test_an_unreachable_mirror_is_named_with_log_and_remedy(tmp_path: Path) -> None:
    # Port 9 (discard) is below the ephemeral range: nothing of ours can be listening on it.
    env = {
        "MOTEMQ_CACHE": str(tmp_path),
        "MOTEMQ_DEBIAN_MIRROR": "http://127.0.0.1:9/debian",
    }
    error = _one_line_error(_firmware("build", "unix", env=env))
    log = tmp_path / "logs" / "micropython-source.log"
    assert "Could not connect to 127.0.0.1:9" in error
    assert f"log: {log};" in error
    assert "check the network and apt's mirror" in error
    assert "apt-get" in log.read_text()
    assert not any(path.is_dir() for path in (tmp_path / "micropython-source").iterdir())


def test_an_unusable_cache_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {"MOTEMQ_CACHE": str(tmp_path / "file")}
    error = _one_line_error(_firmware("build", "unix", env=env))
    assert str(tmp_path / "file") in error
    assert "set MOTEMQ_CACHE to another folder" in error
