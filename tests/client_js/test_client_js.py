"""The JavaScript client's own tests, by Node's test runner, and its types."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import hatch_build
from hatch_build import CustomBuildHook
from tests.client_js.node import CLIENT, environment, node, run_tests, typescript

_TYPES_S = 120


@pytest.mark.parametrize("file", sorted(CLIENT.glob("tests/*.test.js")), ids=lambda file: file.stem)
def test_its_tests_pass(file: Path) -> None:
    assert run_tests(str(file)) >= 5


def test_there_are_tests() -> None:
    """A glob that finds nothing would be a test that cannot fail."""
    assert len(list(CLIENT.glob("tests/*.test.js"))) >= 3


def _tsc(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [node().node, typescript(), *arguments],
        cwd=CLIENT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_TYPES_S,
        check=False,
    )


def test_its_types_are_right() -> None:
    done = _tsc("--project", "tsconfig.json")
    assert done.returncode == 0, done.stdout


def test_programs_get_its_types(tmp_path: Path) -> None:
    """What a program does wrong, the types say."""
    program = tmp_path / "program.js"
    program.write_text(
        f'import {{ connect }} from "{CLIENT}/umq.js";\n'
        "const client = await connect();\n"
        'const answer = await client.call("board", 5);\n'
        "answer.no_such_thing;\n"
    )
    config = json.loads((CLIENT / "tsconfig.json").read_text())
    config["files"] = [str(program)]
    (tmp_path / "tsconfig.json").write_text(json.dumps(config))
    done = _tsc("--project", str(tmp_path / "tsconfig.json"))
    assert done.returncode != 0
    (line,) = done.stdout.strip().splitlines()[:1]
    assert "program.js(4,8): error TS2339" in line


def test_the_wheel_has_it_once() -> None:
    """As a file of the dashboard, which serves it; a checkout has it once, and no link to it."""
    root = CLIENT.parent
    tracked = subprocess.run(
        ["git", "ls-files", "-s", "*umq.js"], cwd=root, capture_output=True, text=True, check=True
    )
    assert [line.split()[0] + line.split()[3] for line in tracked.stdout.splitlines()] == [
        "100644client_js/umq.js"
    ]
    builder = WheelBuilder(str(root))
    build_data: dict[str, Any] = {"artifacts": [], "force_include": {}}
    hook = CustomBuildHook(str(root), {}, builder.config, None, str(root), "wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hatch_build, "MODULES", ())  # what is compiled is another matter
        hook.initialize("standard", build_data)
    with builder.config.set_build_data(builder.get_default_build_data() | build_data):
        files = list(builder.recurse_included_files())
    found = {each.distribution_path: Path(each.path) for each in files}
    named = [name for name in found if name.endswith("umq.js") or "client_js" in name]
    assert named == ["host_broker/dashboard/umq.js"]
    assert found[named[0]].resolve() == CLIENT / "umq.js"


def test_it_is_one_file_without_dependencies() -> None:
    """A page loads it as it is."""
    package = json.loads((CLIENT / "package.json").read_text())
    assert "dependencies" not in package
    lines = (CLIENT / "umq.js").read_text().splitlines()
    assert [line for line in lines if line.startswith("import") or " require(" in line] == []
