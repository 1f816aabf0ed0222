"""The one command: lazy, helpful, and clear when a part is not installed."""

import os
import subprocess
import sys

import pytest

from motemq.cli import _SUB_COMMANDS


def _motemq(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *(["-c", code] if code else ["-m", "motemq"]), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180)


def test_help_lists_every_sub_command() -> None:
    result = _motemq("--help")
    assert result.returncode == 0
    assert [name for name in _SUB_COMMANDS if f"\n  {name} " not in result.stdout] == []


@pytest.mark.parametrize("name", _SUB_COMMANDS)
def test_each_sub_command_has_help(name: str) -> None:
    result = _motemq(name, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Usage: ")


def test_pub_help_never_loads_spark_or_the_rig() -> None:
    loaded = _motemq(
        code="import sys\n"
        "from motemq.cli import main\n"
        "main(['pub', '--help'], standalone_mode=False)\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('pyspark', 'pandas', 'boards', 'serial', 'esptool', 'mpremote')))"
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [("bridge", "serial", "rig"), ("pipeline", "pyspark", "pipeline")],
)
def test_a_part_that_is_not_installed_is_named_with_its_remedy(
    command: str, package: str, extra: str
) -> None:
    hidden = f"import sys\nsys.modules['{package}'] = None\n"
    result = _motemq(command, "--help", code=f"{hidden}from motemq.cli import main\nmain()")
    assert result.returncode == 1
    assert f"the package '{package}', which is not installed" in result.stderr
    assert f"pip install 'motemq[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_sub_command_is_a_usage_error() -> None:
    result = _motemq("publish")
    assert result.returncode == 2
    assert "publish" in result.stderr


@pytest.mark.parametrize(
    ("system", "name", "needs"),
    [
        ("darwin", "rig", "Linux"),
        ("win32", "rig", "Linux"),
        ("darwin", "demo", "Linux"),
        ("win32", "firmware", "Linux or macOS"),
        *(("win32", name, "Linux or macOS") for name in ("broker", "doctor", "journal", "top")),
        ("win32", "users", "Linux or macOS"),
    ],
)
def test_what_another_system_lacks_is_one_line(system: str, name: str, needs: str) -> None:
    """Exit code 3: no verdict on anybody's code."""
    code = f"import sys\nfrom motemq.cli import main\nsys.platform = {system!r}\nmain()"
    result = _motemq(name, "run", code=code)
    assert result.returncode == 3
    assert result.stderr == f"Error: 'motemq {name}' needs {needs}; this is {system}\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    ["--help", "--version", "rig run --help", "completion bash", "doctor broker", "rig doctor"],
)
def test_an_output_that_fails_is_one_clear_line(arguments: str, unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:  # a real device on which every write fails
        done = subprocess.run(
            [sys.executable, "-m", "motemq", *arguments.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=180,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.stderr == "Error: cannot write: No space left on device\n"
    assert done.returncode == 3


_NO_UNIX = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "termios", "tty", "pty", "resource", "grp", "pwd"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from motemq.cli import main
main()
"""


@pytest.mark.parametrize("name", ["pub", "sub", "ping", "call"])
def test_client_commands_use_no_module_that_unix_alone_has(name: str) -> None:
    result = _motemq(name, "--help", code=_NO_UNIX)
    assert result.returncode == 0, result.stderr
