"""The workflow for a rig of one's own: its commands exist, and its tries are as documented."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from motemq.cli import main

ROOT = Path(__file__).parents[3]
_FILE = ROOT / ".github" / "workflows" / "rig.yml"
_SCRIPT_S = 60.0

# Stands for .venv/bin/motemq: writes down what it was told, ends as it was told to.
_FAKE = """#!{python}
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "told.jsonl"), "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1:3] == ["rig", "run"]:
    codes = json.load(open(os.path.join(folder, "codes.json")))
    json.dump(codes[1:], open(os.path.join(folder, "codes.json"), "w"))
    sys.exit(codes[0])
"""


def _workflow() -> dict[Any, Any]:
    workflow: dict[Any, Any] = yaml.safe_load(_FILE.read_text())
    return workflow


def _steps() -> dict[str, dict[str, Any]]:
    return {
        step.get("name", step.get("uses")): step for step in _workflow()["jobs"]["rig"]["steps"]
    }


def _run(
    folder: Path, step: str, codes: list[int] | None = None, broker: str = ""
) -> tuple[int, list[list[str]]]:
    """Run a step's script as the runner does; return its exit code and what motemq was told."""
    (folder / "my rig.toml").touch()
    program = folder / ".venv" / "bin" / "motemq"
    program.parent.mkdir(parents=True)
    program.write_text(_FAKE.format(python=sys.executable))
    program.chmod(0o755)
    (program.parent / "codes.json").write_text(json.dumps(codes or []))
    env = {"RIG": "my rig.toml", "BROKER": broker, "CHECKS": "pubsub*,ping"}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _steps()[step]["run"]],
        cwd=folder,
        env={**os.environ, **env, "GITHUB_STEP_SUMMARY": "summary.md"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SCRIPT_S,
    )
    told = (program.parent / "told.jsonl").read_text().splitlines()
    return done.returncode, [json.loads(line) for line in told]


def _understood(words: list[str], folder: Path) -> click.Context:
    """Parse a command line of motemq in a folder; fails on what the command does not take."""
    command: click.Command = main
    context = click.Context(main, info_name="motemq")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    with contextlib.chdir(folder):
        return command.make_context(command.name, list(words), parent=context.parent)


@pytest.mark.parametrize(
    ("codes", "ends"),
    [
        ([0], 0),
        ([1], 1),  # a verdict is never asked for twice
        ([3, 0], 0),
        ([3, 1], 1),
        ([3, 3], 3),  # and a fault not three times
        ([4], 4),
        ([130], 130),
    ],
)
def test_only_a_fault_of_the_rig_is_tried_again_and_once(
    tmp_path: Path, codes: list[int], ends: int
) -> None:
    code, told = _run(tmp_path, "Run", codes)
    assert code == ends
    runs = [words for words in told if words[:2] == ["rig", "run"]]
    assert len(runs) == len(codes)
    parameters = _understood(runs[0], tmp_path).params
    assert parameters["rig_file"] == Path("my rig.toml")
    assert parameters["patterns"] == ("pubsub*,ping",)
    assert parameters["junit"] == Path("out/junit.xml")
    assert parameters["fmqp"] is None


def test_a_broker_of_the_desk_is_used(tmp_path: Path) -> None:
    _, told = _run(tmp_path, "Run", [0], "10.0.0.2:8765")
    assert _understood(told[-1], tmp_path).params["fmqp"] == "10.0.0.2:8765"


@pytest.mark.parametrize("step", ["Doctor", "Reports"])
def test_the_other_commands_exist(tmp_path: Path, step: str) -> None:
    code, told = _run(tmp_path, step)
    assert code == 0
    parameters = [_understood(words, tmp_path).params for words in told]
    if step == "Reports":
        assert parameters[0]["markdown_file"] == Path("summary.md")
        assert parameters[0]["html"] == Path("out/report.html")


def test_the_targets_of_make_exist() -> None:
    words = shlex.split(_steps()["Set up"]["run"])
    assert words[0] == "make"
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words[1:]) <= set(targets)


def test_reports_and_artifacts_are_made_whatever_happened() -> None:
    steps = _steps()
    assert steps["Reports"]["if"] == "always()"
    keep = steps["Keep the results"]
    assert keep["if"] == "always()"
    kept = keep["with"]["path"].split()
    script = steps["Run"]["run"] + steps["Reports"]["run"]
    assert all(path in script for path in ("out/junit.xml", "out/report.html"))
    assert {"out/junit.xml", "out/report.html", "out/rig/rig", "out/rig/logs"} <= set(kept)


def test_strangers_do_not_get_the_machine() -> None:
    workflow = _workflow()
    triggers = workflow[True]  # YAML 1.1 reads the word "on" so
    assert set(triggers) == {"push", "schedule", "workflow_dispatch"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "self-hosted" in workflow["jobs"]["rig"]["runs-on"]
    # What a person types into the form goes into a variable, never into a script.
    scripts = [step.get("run", "") for step in workflow["jobs"]["rig"]["steps"]]
    assert not any("${{" in script for script in scripts)
