"""What executors are sent runs with the packages that docs/pipeline.md names, and no others."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from benchmarks.cluster.spark import EXECUTORS, clean_python
from motemq.cli import _SUB_COMMANDS
from motemq_pipeline.packaging import write_package
from motemq_pipeline.spark_release import RELEASE

_DOCS = Path(__file__).parents[2] / "docs" / "pipeline.md"
# What runs in executors: the source and the sink, decoding, files, tables, alerts, the notebook's.
_MODULES = (
    "pyspark_motemq.source",
    "motemq_pipeline.decoding_arrow",
    "motemq_pipeline.parquet_files",
    "motemq_pipeline.table_source",
    "motemq_pipeline.alerts.processor",
    "motemq_pipeline.rollups",
    "motemq_pipeline.silver",
    "motemq_pipeline.sequence_numbers",
)


def _imported(python: str, package: Path, *modules: str) -> "subprocess.CompletedProcess[str]":
    program = "".join(f"import {module}\n" for module in modules)
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.run(
        [python, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("package") / "motemq.zip")


def test_executors_need_what_the_docs_say_and_no_more(package: Path, tmp_path: Path) -> None:
    said = " ".join(_DOCS.read_text().split())
    (needs,) = re.findall(r"`PYSPARK_PYTHON` names needs (.*?) The driver's", said)
    named = re.findall(r"`([^`]+)`", needs)
    assert named[:3] == list(EXECUTORS)
    assert named[3:] == ["deltalake", "cbor2", "protobuf", "[alerts]"]
    python = clean_python(tmp_path / "least", *EXECUTORS)
    done = _imported(python, package, *_MODULES)
    assert (done.returncode, done.stderr) == (0, "")
    # It has no others: ours is not there without the package, nor what the driver needs.
    for module in ("motemq_pipeline", "pydantic", "deltalake", "cbor2"):
        assert f"No module named '{module}'" in _imported(python, tmp_path, module).stderr


def test_alerts_need_one_package_more_for_sparks_state(tmp_path: Path) -> None:
    """Spark imports it in the middle of a batch, and then says only that a worker crashed."""
    state = "pyspark.sql.streaming.proto.StateMessage_pb2"
    least = clean_python(tmp_path / "least", *EXECUTORS)
    assert "google" in _imported(least, tmp_path, state).stderr
    more = clean_python(tmp_path / "more", *EXECUTORS, "protobuf")
    # And here, where nothing but motemq[pipeline] is installed.
    here = clean_python(tmp_path / "here", *_extra())
    for python in (more, here):
        done = _imported(python, tmp_path, state)
        assert (done.returncode, done.stderr) == (0, "")


def _extra() -> list[str]:
    """Return what pip installs for motemq[pipeline], beside what every motemq needs."""
    found: list[str] = tomllib.loads((_DOCS.parents[1] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["pipeline"]
    return found


def test_commands_miss_what_is_not_installed_before_they_begin() -> None:
    """Most are imported in the middle of a command."""
    names = {re.split(r"[^a-z0-9]", each)[0] for each in _extra()}
    assert names - {"protobuf"} == set(_SUB_COMMANDS["pipeline"].later)
    assert f"pyspark[sql]=={RELEASE}.*" in _extra()
