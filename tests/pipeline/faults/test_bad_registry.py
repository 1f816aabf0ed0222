"""A registry with mistakes: a continuous run does not begin, and says where they are."""

import subprocess
import sys
from pathlib import Path

_REGISTRY = """[[rule]]
path = "lab/{board}/{sensor}"
is = "telemetry"
encoding = "xml"

[[rule]]
path = "field/{board"
is = "ignored"
"""


def test_a_run_is_refused_at_start_with_every_line(tmp_path: Path) -> None:
    (tmp_path / "registry.toml").write_text(_REGISTRY)
    config = tmp_path / "run.toml"
    config.write_text(
        '[source]\nbrokers = "http://127.0.0.1:1"\n'
        '[tables]\nfolder = "tables"\nregistry = "registry.toml"\n'
    )
    argv = [sys.executable, "-m", "motemq", "pipeline", "run", str(config)]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 3
    for line in (4, 7):
        assert f"{tmp_path / 'registry.toml'}:{line}: " in run.stderr
    assert "Spark" not in run.stdout
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "tables").exists()
