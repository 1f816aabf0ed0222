"""The project in ``examples/``, as a stranger has it: MoteMQ from a wheel in an environment of its
own, no clone in reach, and the scripts of the workflow that such a repository calls."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.boards.rig_process import outcomes

ROOT = Path(__file__).parents[3]
_WORKFLOW = ROOT / ".github" / "workflows" / "app-tests.yml"
_EXAMPLE = ROOT / "examples" / "thermometer"
_STEP_S = 280.0


def _workflow() -> dict[Any, Any]:
    workflow: dict[Any, Any] = yaml.safe_load(_WORKFLOW.read_text())
    return workflow


def _run(
    arguments: list[str | Path], folder: Path, **env: str
) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(each) for each in arguments],
        cwd=folder,
        env={**clean, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_STEP_S,
    )


def _step(folder: Path, name: str, **inputs: str) -> str:
    """Run a step's script as the runner does; return what it printed."""
    workflow = _workflow()
    (script,) = [
        step["run"] for step in workflow["jobs"]["app"]["steps"] if step.get("name") == name
    ]
    given = {
        key: value["default"] for key, value in workflow[True]["workflow_call"]["inputs"].items()
    } | inputs
    env = {
        name: given[value.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, value in workflow["env"].items()
        if "inputs." in value
    }
    done = _run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        folder,
        MOTEMQ_RUNTIME_DIR=str(folder / "runtime"),
        **env,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the example, with what its step "Set up" makes of a wheel of this tree."""
    made = tmp_path_factory.mktemp("wheel")
    # Without the compiled parts, which are not what is asked here.
    built = _run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made],
        ROOT,
        HATCH_BUILD_NO_HOOKS="true",
    )
    assert built.returncode == 0, built.stdout
    (wheel,) = made.glob("motemq-*.whl")
    folder = tmp_path_factory.mktemp("elsewhere") / "thermometer"
    shutil.copytree(_EXAMPLE, folder)
    venv.create(folder / ".venv", symlinks=True)
    python = folder / ".venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    installed = _run([*command, "--no-deps", "--no-index", wheel], folder)
    assert installed.returncode == 0, installed.stdout
    # Other people's packages are those of this environment; the .pth file there, which leads to
    # our tree, is not read for a folder that comes by one.
    (site,) = folder.glob(".venv/lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield folder


def test_its_tests_pass_on_a_virtual_board_without_a_clone(project: Path) -> None:
    where = _run(
        [project / ".venv/bin/python", "-c", "import boards, umotemq; print(boards.__file__)"],
        project,
    )
    assert Path(where.stdout.strip()).is_relative_to(project), where.stdout
    _step(project, "Boards")
    try:
        said = _step(project, "Test")
        run = ["run", "--checks", "my_checks.py,ping", "--out", "elsewhere"]
        verdict = _run(
            [project / ".venv/bin/python", "-m", "motemq", "rig", *run],
            project,
            MOTEMQ_RUNTIME_DIR=str(project / "runtime"),
        )
    finally:
        _step(project, "Boards down")
    assert verdict.returncode == 0, verdict.stdout
    assert outcomes(project / "elsewhere", "vesp32-1", "check_finished", "check") == {
        "ping": "passed",
        "temperature": "passed",
    }
    assert "5 passed" in said
    cases = list(ET.parse(project / "out" / "junit.xml").getroot().iter("testcase"))
    assert all(case.get("name", "").endswith("[vesp32-1]") for case in cases)
    (heap,) = [one for one in cases[0].iter("property") if one.get("name") == "heap_free"]
    assert (heap.get("value") or "").endswith(" bytes")


def test_a_defect_of_the_program_fails_its_tests(project: Path) -> None:
    """What a developer sees: the test, and what the board said."""
    app = project / "app" / "thermometer.py"
    good = app.read_text()
    app.write_text(good.replace('"-" if', '"+" if'))
    _step(project, "Boards")
    try:
        words = ["-m", "pytest", "-k", "degrees or power", "--rig", "rig.toml"]
        done = _run(
            [project / ".venv/bin/python", *words],
            project,
            MOTEMQ_RUNTIME_DIR=str(project / "runtime"),
        )
    finally:
        _step(project, "Boards down")
        app.write_text(good)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "+0.5" in done.stdout
    assert "what vesp32-1 said" in done.stdout


def test_what_needs_a_clone_says_so(project: Path) -> None:
    done = _run(
        [project / ".venv/bin/python", "-m", "motemq", "firmware", "client", "out"], project
    )
    assert done.returncode == 1
    assert done.stdout.startswith("Error: ")
    assert done.stdout.endswith("the client's packages are made in a clone of MoteMQ\n")


def test_the_workflow_asks_for_nothing_that_is_not_there() -> None:
    workflow = _workflow()
    assert list(workflow[True]) == ["workflow_call"]
    assert workflow["permissions"] == {"contents": "read"}
    inputs = workflow[True]["workflow_call"]["inputs"]
    called = yaml.safe_load((_EXAMPLE / ".github" / "workflows" / "boards.yml").read_text())
    (job,) = called["jobs"].values()
    assert job["uses"].split("@")[0].endswith(f"/.github/workflows/{_WORKFLOW.name}")
    assert set(job["with"]) <= set(inputs)
    steps = workflow["jobs"]["app"]["steps"]
    # What a caller types goes into a variable, never into a script.
    assert not any("${{" in step.get("run", "") for step in steps)
    assert (_EXAMPLE / inputs["requirements"]["default"]).is_file()
    assert (_EXAMPLE / inputs["tests"]["default"]).is_dir()
    assert [step["if"] for step in steps if step.get("name") == "Keep the results"] == ["always()"]
