"""A Spark of our own on this machine: loopback only, quiet, UTC, gone when we are."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.java import Java, find_java

_JVM_END_S = 20.0
_LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def _settings(scratch: Path) -> dict[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return {
        "spark.master": "local[*]",
        "spark.app.name": "motemq pipeline",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Serial GC and the first compiler only: a run is seconds long.
        "spark.driver.extraJavaOptions": (
            "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dderby.system.home="
            f"{scratch} -Dlog4j2.configurationFile={log4j.as_uri()}"
        ),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # Not INT96, whose readers must guess the time zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.ansi.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextlib.contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """Start Spark, and stop it with its Java process when the block ends.

    Everything Java says goes to the file ``log``. Java ends by itself if we are killed: it waits
    for the end of its stdin. Raises ``PipelineError`` if there is no Java or it does not start.
    """
    java = find_java(os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="motemq-spark-", ignore_cleanup_errors=True) as scratch,
        log.open("a") as output,
        _environment(java, Path(scratch)),
    ):
        conf = SparkConf(loadDefaults=False)
        for key, value in _settings(Path(scratch)).items():
            conf.set(key, value)
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]  # PySpark has no types there
                conf, {"stdout": output, "stderr": subprocess.STDOUT}
            )
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:  # whatever stopped Java, the log has its words
            raise PipelineError(
                f"Spark did not start with Java {java.version} at {java.home}: "
                f"{str(error).splitlines()[0]}; Java's own words are in {log}"
            ) from error
        try:
            yield SparkSession(context)
        finally:
            context.stop()
            gateway.shutdown()
            _end(gateway.proc)
            # PySpark keeps them for the process; the next session needs a new Java.
            SparkContext._gateway = None
            SparkContext._jvm = None


def _end(process: subprocess.Popen[bytes]) -> None:
    stdin: IO[bytes] | None = process.stdin
    if stdin is not None:
        stdin.close()
    try:
        process.wait(_JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _environment(java: Java, scratch: Path) -> Iterator[None]:
    """Point Spark's scripts at our Java and interpreter, and away from the user's settings."""
    empty = scratch / "conf"
    empty.mkdir()
    ours = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(empty),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    }
    theirs = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in theirs.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
