"""Where a Spark of ours can be reached, and whose settings hold."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.cluster.spark import EXECUTORS, clean_python
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.failures import of_java
from motemq_pipeline.sessions import (
    _ARROW_JAVA,
    _driver_address,
    _java_options,
    _knock_at_master,
    _python_sockets,
    _submitted,
    address_for,
    any_session,
    is_local,
    spark_session,
)


def test_a_driver_is_reached_at_the_address_by_which_it_reaches_the_master() -> None:
    assert address_for("spark://127.0.0.1:7077") == "127.0.0.1"
    assert address_for("spark://localhost:7077,localhost:7078") == "127.0.0.1"
    assert address_for("k8s://https://127.0.0.1:6443") == "127.0.0.1"
    assert address_for("spark://[::1]:7077") in ("::1", "")  # without IPv6 there is no way
    assert address_for("yarn") == ""
    assert address_for("spark://no.such.host.invalid:7077") == ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 7077))
            ours = probe.getsockname()[0]
        except OSError:  # a machine without a way out
            ours = ""
    assert address_for("spark://192.0.2.1:7077") == ours


@pytest.mark.parametrize("package", ["grpc", "zstandard"])
def test_what_a_connect_server_takes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """PySpark's own words would be told as those of a server that does not answer."""
    monkeypatch.setitem(sys.modules, package, None)
    told = rf"the package '{package}' is needed, .* pip install 'motemq\[connect\]'"
    settings = {"spark.master": "sc://127.0.0.1:1"}
    with pytest.raises(PipelineError, match=told), any_session(tmp_path / "log", settings=settings):
        pytest.fail("there is no server")


def test_java_and_python_of_one_machine_talk_by_sockets_in_our_own_folder() -> None:
    brief = Path("/tmp/motemq-spark-12345678")
    settings = _python_sockets("local[2]", brief)
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    assert settings["spark.python.unix.domain.socket.dir"] == str(brief)
    assert _python_sockets("local[2]", brief / ("x" * 50)) == {}  # too long for a socket
    assert _python_sockets("spark://127.0.0.1:7077", brief) == {}


def test_java_looks_at_each_value_from_python_once(spark: SparkSession) -> None:
    arrow = spark.sparkContext._jvm.org.apache.arrow  # type: ignore[union-attr]
    assert not arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert not arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED
    # Executors of a cluster are told the same.
    assert spark.conf.get("spark.executor.defaultJavaOptions") == _ARROW_JAVA


def test_a_cluster_keeps_the_java_options_it_has_of_its_own(tmp_path: Path) -> None:
    """Those of its settings, for drivers and executors; where they say otherwise, they win."""
    null_checks = "arrow.enable_null_check_for_get"
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.driver.defaultJavaOptions -Dmotemq.test=driver\n"
        f"spark.executor.defaultJavaOptions -Dmotemq.test=executor -D{null_checks}=true\n"
    )
    program = (
        "import sys; from pathlib import Path; from motemq_pipeline.sessions import spark_session\n"
        "chosen = {'spark.master': 'local-cluster[1,1,1024]'}\n"
        "with spark_session(Path(sys.argv[1]), settings=chosen) as spark:\n"
        "    java = spark.sparkContext._jvm.java.lang.System\n"
        "    asked = ['motemq.test', 'arrow.enable_unsafe_memory_access', sys.argv[2]]\n"
        "    print(*(java.getProperty(name) for name in asked))\n"
        "    of = \"java_method('java.lang.System', 'getProperty', '{}')\"\n"
        "    row = spark.range(1).repartition(1).selectExpr(*map(of.format, asked)).first()\n"
        "    print(*row)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "log"), null_checks]
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "driver true false\nexecutor true true\n",
    ), done.stderr


def test_a_python_for_executors_that_has_not_us_plans_streams(tmp_path: Path) -> None:
    """On the driver's machine, too, Spark starts the Python of executors for that."""
    python = clean_python(tmp_path / "python", *EXECUTORS, "deltalake")
    program = (
        "import sys; from pathlib import Path\n"
        "from motemq_pipeline import table_source\n"
        "from motemq_pipeline.delta import Table\n"
        "from motemq_pipeline.sessions import spark_session\n"
        "from motemq_pipeline.storage import Storage\n"
        "place = Storage.at(sys.argv[1])\n"
        "Table(place, 'alerts').create()\n"
        "chosen = {'spark.master': 'local-cluster[1,1,1024]'}\n"
        "with spark_session(Path(sys.argv[1]) / 'log', settings=chosen) as spark:\n"
        "    rows = table_source.stream(spark, place.within('alerts'), 'alerts', 0)\n"
        "    stream = rows.writeStream.format('noop').trigger(availableNow=True)\n"
        "    query = stream.option('checkpointLocation', sys.argv[1] + '/checkpoint').start()\n"
        "    query.awaitTermination()\n"
        "    print(query.lastProgress.batchId)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": python}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_what_a_python_for_executors_lacks_is_said_in_one_line(tmp_path: Path) -> None:
    """It is imported where roll-ups are made, when all else has been done."""
    lacks = "datasketches"
    has = [each for each in EXECUTORS if each != lacks]
    python = clean_python(tmp_path / "python", *has, "deltalake")
    program = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path\n"
        "import pyarrow as pa\n"
        "from motemq_pipeline.delta import Table\n"
        "from motemq_pipeline.errors import PipelineError\n"
        "from motemq_pipeline.failures import in_words\n"
        "from motemq_pipeline.parquet_files import Target, written_by\n"
        "from motemq_pipeline.refresh import SILVER, Refresh\n"
        "from motemq_pipeline.registry import BUILT_IN, load_registry\n"
        "from motemq_pipeline.schemas import TABLES, arrow_schema\n"
        "from motemq_pipeline.sessions import spark_session\n"
        "from motemq_pipeline.storage import Storage\n"
        "place, log = Storage.at(sys.argv[1]), Path(sys.argv[1]) / 'log'\n"
        "for name in TABLES:\n"
        "    Table(place, name).create()\n"
        "row = {'board': 'a', 'sensor': 't', 'value': 1.0, 'event_time': datetime.now(UTC)}\n"
        "schema = pa.schema([each for each in arrow_schema(SILVER) if each.name != 'date'])\n"
        "rows = pa.RecordBatch.from_pylist([row], schema=schema)\n"
        "Table(place, SILVER).add(written_by(place, Target(SILVER), iter([rows])), 'silver', 0)\n"
        "chosen = {'spark.master': 'local-cluster[1,1,1024]', 'spark.task.maxFailures': 1}\n"
        "try:\n"
        "    with spark_session(log, settings=chosen) as spark, in_words(log):\n"
        "        Refresh(spark, place, load_registry(BUILT_IN), None).follow()\n"
        "except PipelineError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    argv = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    (line,) = done.stdout.splitlines()
    assert line.startswith("Spark failed: "), done.stderr
    assert line.endswith(
        f"ModuleNotFoundError: No module named '{lacks}'; its log is {tmp_path / 'log'}"
    )


@pytest.mark.parametrize("by", ["setting", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_who_chooses_a_garbage_collector_has_it(tmp_path: Path, by: str) -> None:
    """Java does not start with two of them."""
    program = (
        "import sys; from pathlib import Path; from motemq_pipeline.sessions import spark_session\n"
        "chosen = {'spark.driver.extraJavaOptions': sys.argv[2]} if sys.argv[2] else {}\n"
        "with spark_session(Path(sys.argv[1]), settings=chosen) as spark:\n"
        "    java = spark.sparkContext._jvm.java.lang\n"
        "    beans = java.management.ManagementFactory.getGarbageCollectorMXBeans()\n"
        "    print(beans[0].getName(), java.System.getProperty('motemq.test'))\n"
    )
    chosen = "-XX:+UseParallelGC -Dmotemq.test=1"
    argv = [sys.executable, "-c", program, str(tmp_path / "log"), chosen * (by == "setting")]
    environment = {**os.environ}
    environment.pop("JDK_JAVA_OPTIONS", None)  # of our tests, which choose one for all Javas
    environment |= {} if by == "setting" else {by: chosen}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "PS MarkSweep 1\n"), done.stderr


@pytest.mark.parametrize(
    ("chosen", "ours"),
    [
        ({}, True),
        ({"spark.driver.extraJavaOptions": "-Dx=1"}, True),
        ({"spark.driver.extraJavaOptions": "-Dx=1 -XX:+UseG1GC"}, False),
        ({"spark.driver.extraJavaOptions": "-XX:+UseZGC"}, False),
        ({"spark.master": "spark://10.1.2.4:7077"}, False),  # whose own settings are not here
    ],
)
def test_brief_work_has_a_brief_collector(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], ours: bool
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # of our tests
    assert ("-XX:+UseSerialGC" in _java_options(True, chosen)) is ours
    assert "UseSerialGC" not in _java_options(False, chosen)


def test_only_a_cluster_reaches_the_driver_by_more_than_loopback() -> None:
    at = "10.1.2.3"
    assert _driver_address("spark://10.1.2.4:7077", at) == {
        "spark.driver.host": at,
        "spark.driver.bindAddress": at,
    }
    assert _driver_address("yarn", "") == {}
    for master in ("local", "local[2]", "local[*,4]"):
        assert is_local(master)
        assert _driver_address(master, at)["spark.driver.bindAddress"] == "127.0.0.1"
    assert not is_local("local-cluster[2,1,512]")


def test_what_spark_submit_was_told_goes_before_our_settings(spark: SparkSession) -> None:
    """The session of these tests was started as spark-submit starts one, with --conf."""
    session = _submitted({"spark.sql.shuffle.partitions": "4711", "spark.motemq.test": "new"})
    assert session.conf.get("spark.sql.shuffle.partitions") == str(os.cpu_count())
    assert session.conf.get("spark.motemq.test") == "new"
    session.conf.unset("spark.motemq.test")


def test_what_java_refuses_is_told_in_its_words() -> None:
    # As py4j tells of spark.network.timeout = 20s.
    refused = RuntimeError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalArgumentException: requirement failed: spark.network.timeoutInterval "
        "should be less than or equal to spark.network.timeout.\n"
        "\tat scala.Predef$.require(Predef.scala:337)\n"
    )
    assert of_java(refused) == (
        "requirement failed: spark.network.timeoutInterval should be less than or equal to "
        "spark.network.timeout."
    )
    assert of_java(RuntimeError("no Java\nin PATH")) == "no Java"


def test_a_master_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        _knock_at_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # the second one may lead
    for master in ("spark://127.0.0.1:1", f"spark://127.0.0.1:1,127.0.0.1:{port}"):
        with (
            pytest.raises(PipelineError, match=rf"no Spark master answers at {master}: \[Errno"),
            spark_session(tmp_path / "log", settings={"spark.master": master}),
        ):
            raise AssertionError("it must not start")
    for master in ("spark://nowhere", "spark://127.0.0.1:port"):
        with pytest.raises(PipelineError, match=f"no Spark master answers at {master}: "):
            _knock_at_master(master)
    for master in ("local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        _knock_at_master(master)


def test_another_time_zone_is_refused_in_a_sentence(tmp_path: Path) -> None:
    zone = {"spark.sql.session.timeZone": "Europe/Berlin"}
    with (
        pytest.raises(PipelineError, match=r"timeZone is Europe/Berlin, but .* are those of UTC"),
        spark_session(tmp_path / "log", settings=zone),
    ):
        raise AssertionError("it must not start")
