"""House rules that a machine can check; import contracts between parts run in `make check`."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SAYS_NOTHING = {"util", "utils", "helper", "helpers", "common", "misc", "base"}
# What MicroPython itself offers on every port we serve, with CPython's names for the same.
_ON_BOARD = {
    *("array", "asyncio", "binascii", "errno", "gc", "hashlib", "io", "json", "machine"),
    *("micropython", "network", "os", "random", "select", "socket", "ssl", "struct", "sys"),
    *("time", "tls", "vfs"),
}


def _tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return [ROOT / name for name in listed if name.endswith(suffixes) and (ROOT / name).is_file()]


def test_no_file_is_named_for_nothing() -> None:
    files = _tracked(".py", ".mjs", ".sh")
    assert files
    assert [str(path) for path in files if path.stem in _SAYS_NOTHING] == []


def _modules(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name; a package's own is its ``__init__``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imports(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules that a module imports anywhere in it, for types or for use."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in modules else node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules.keys()


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, [] if none do."""
    done: set[str] = set()
    for start in graph:
        trail: list[str] = []
        todo = [(start, False)]
        while todo:
            module, leaving = todo.pop()
            if leaving:
                done.add(trail.pop())
            elif module in trail:
                return [*trail[trail.index(module) :], module]
            elif module not in done:
                trail.append(module)
                todo.append((module, True))
                todo += [(each, False) for each in sorted(graph[module])]
    return []


def test_a_circle_is_found() -> None:
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert _circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


# Not of the client: what a board seldom needs is imported where it is needed, by what it names.
@pytest.mark.parametrize(
    ("package", "least"),
    [
        *(("benchmarks", 100), ("boards", 150), ("firmware", 20), ("host_broker", 200)),
        *(("motemq", 6), ("pipeline/motemq_pipeline", 50), ("pipeline/pyspark_motemq", 10)),
    ],
)
def test_no_module_imports_in_a_circle(package: str, least: int) -> None:
    modules = _modules(ROOT / package)
    assert len(modules) > least
    assert _circle({name: _imports(path, modules) for name, path in modules.items()}) == []


def test_every_package_says_what_is_inside() -> None:
    packages = [path for path in _tracked("__init__.py") if "tests" not in path.parts]
    assert packages
    silent = []
    for path in packages:
        text = path.read_text()
        # Docstrings of the board's package cost flash, comments do not.
        if not (ast.get_docstring(ast.parse(text)) or text.startswith("#")):
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("folder", ["client_upy/umotemq", "firmware/node"])
def test_what_runs_on_boards_imports_micropython_only(folder: str) -> None:
    # What begins with _cpython lends CPython what MicroPython has, and goes on no board.
    files = [p for p in sorted((ROOT / folder).glob("*.py")) if not p.stem.startswith("_cpython")]
    assert files
    allowed = _ON_BOARD | {"umotemq"} | {path.stem for path in files}
    strays = {path.name: sorted(_imported(path) - allowed) for path in files}
    assert {name: found for name, found in strays.items() if found} == {}


def test_no_machine_path_or_registry_host_is_committed() -> None:
    suspects = ["/" + "work/", "pypi" + ".org", "registry.npmjs" + ".org", "deb.debian" + ".org"]
    text_files = _tracked(".py", ".md", ".mjs", ".sh", ".toml", ".json", "Makefile", "run")
    found = [
        f"{path.relative_to(ROOT)}: {suspect}"
        for path in text_files
        for suspect in suspects
        if suspect in path.read_text()
    ]
    assert found == []
