"""The one command: lazy, helpful, and clear when a part is not installed."""

import subprocess
import sys

import pytest

from motemq.cli import _SUB_COMMANDS


def _motemq(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *(["-c", code] if code else ["-m", "motemq"]), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


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


def test_a_part_that_is_not_installed_is_named_with_its_remedy() -> None:
    result = _motemq(
        "bridge",
        "--help",
        code="import sys\nsys.modules['serial'] = None\nfrom motemq.cli import main\nmain()",
    )
    assert result.returncode == 1
    assert "pip install 'motemq[rig]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_sub_command_is_a_usage_error() -> None:
    result = _motemq("publish")
    assert result.returncode == 2
    assert "publish" in result.stderr
