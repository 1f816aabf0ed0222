"""``requirements.lock`` pins all that pyproject.toml asks for, with hashes, and nothing else; and
what is installed here is what it says."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).resolve().parents[2]
_LOCK = _ROOT / "requirements.lock"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)(?: ; ([^\\]+?))? \\")
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


@pytest.fixture(scope="module")
def pins() -> dict[str, list[Requirement]]:
    """What is pinned, by name; several if it depends on the machine."""
    found: dict[str, list[Requirement]] = {}
    hashes = 1
    for line in _LOCK.read_text().splitlines():
        if line.startswith("#"):
            continue
        if pin := _PIN.fullmatch(line):
            assert hashes, f"the pin before {pin[1]} has no hash"
            hashes = 0
            marker = f" ; {pin[3]}" if pin[3] else ""
            requirement = Requirement(f"{pin[1]}=={pin[2]}{marker}")
            found.setdefault(canonicalize_name(pin[1]), []).append(requirement)
        else:
            assert _HASH.fullmatch(line), f"this is neither a pin nor a hash: {line}"
            hashes += 1
    assert hashes
    return found


def _asked() -> list[Requirement]:
    document = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    project = document["project"]
    texts = [*document["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        texts += extra
    return [each for each in map(Requirement, texts) if each.name != "motemq"]


def test_it_pins_what_pyproject_asks_for(pins: dict[str, list[Requirement]]) -> None:
    for asked in _asked():
        locked = pins.get(canonicalize_name(asked.name), [])
        assert locked, f"{asked.name} is not in requirements.lock: make lock"
        for pin in locked:
            (version,) = pin.specifier
            assert asked.specifier.contains(version.version, prereleases=True), (
                f"requirements.lock has {pin}, pyproject.toml wants {asked}: make lock"
            )


def test_it_pins_nothing_else(pins: dict[str, list[Requirement]]) -> None:
    """Of what is installed here, from requirement to requirement."""
    reached: set[str] = set()
    absent: list[str] = []
    waiting = [(each.name, frozenset(each.extras)) for each in _asked()]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        reached.add(canonicalize_name(name))
        try:
            requires = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            absent.append(canonicalize_name(name))
            continue  # for other machines, or Node where the system has one
        for requirement in map(Requirement, requires):
            marker = requirement.marker
            if marker is not None and not any(
                marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                continue
            following = requirement.name, frozenset(requirement.extras)
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    here = {
        name
        for name, requirements in pins.items()
        if any(each.marker is None or each.marker.evaluate() for each in requirements)
    }
    assert reached <= set(pins)
    # What an absent one asks for is not to be known here, but its parts, by their names.
    parts = {name for name in here if any(name.startswith(f"{one}-") for one in absent)}
    assert here - parts == reached - parts


def test_what_is_installed_is_what_it_pins(pins: dict[str, list[Requirement]]) -> None:
    for name, requirements in pins.items():
        for pin in requirements:
            if pin.marker is None or pin.marker.evaluate():
                installed = importlib.metadata.version(name)
                assert pin.specifier.contains(installed, prereleases=True), (
                    f"{name} {installed} is installed, and requirements.lock has {pin}"
                )


def test_pip_takes_it_with_require_hashes_and_without_the_network() -> None:
    """All of it is installed, so pip has nothing to fetch, but it reads every line."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--require-hashes"]
    done = subprocess.run(
        [*command, "--no-index", "--disable-pip-version-check", "-r", str(_LOCK)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=_ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout


def test_a_package_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    """The attack: an index that gives another file for the same version."""
    wheels = tmp_path / "wheels"
    project = tmp_path / "iniconfig"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "iniconfig"\nversion = "VERSION"\n'.replace(
            "VERSION", importlib.metadata.version("iniconfig")
        )
    )
    (project / "iniconfig.py").write_text("raise SystemExit('owned')\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(project)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    lines = _LOCK.read_text().split("\n")
    begin = next(n for n, line in enumerate(lines) if line.startswith("iniconfig=="))
    end = next(n for n in range(begin + 1, len(lines)) if not lines[n].startswith("    "))
    (tmp_path / "one.lock").write_text("\n".join(lines[begin:end]))
    install = [*pip, "install", "--require-hashes", "--no-index", "--find-links", str(wheels)]
    done = subprocess.run(
        [*install, "--target", str(tmp_path / "target"), "-r", str(tmp_path / "one.lock")],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)},
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "target").exists()
