"""Sessions of Spark: one of our own, quiet, UTC, gone when we are; or one that others started.

One of our own on this machine is reached by loopback only. A cluster reaches it at the address by
which this machine reaches the cluster. Others start one by ``spark-submit`` or serve Spark Connect.
"""

import contextlib
import importlib.util
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from host_broker.scratch_folder import scratch_folder
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.failures import of_java, why_java_ended
from motemq_pipeline.java import Java, find_java
from motemq_pipeline.packaging import write_package

_JVM_END_S = 20.0
# The path of a Unix socket has at most 103 bytes (macOS), its name 43.
_LONGEST_SCRATCH = 60
_CONNECT_PORT = 15_002  # Spark's usual one
_CONNECT_NEEDS = ("google", "grpc", "grpc_status", "zstandard")
_KNOCK_S = 10.0
# All cores, and a task that fails is tried again, as clusters do: Python may start too late.
_LOCAL = "local[*,4]"
# Without Hadoop's native library every chmod is a process, each made by one more otherwise.
_JAVA = "-Djdk.lang.Process.launchMechanism=VFORK"
_BRIEF_JAVA = "-XX:TieredStopAtLevel=1"
_BRIEF_COLLECTOR = "-XX:+UseSerialGC"
_SUBMIT_JAVA = "SPARK_SUBMIT_OPTS"
_ENVIRONMENTS_JAVA = (_SUBMIT_JAVA, "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_COLLECTOR = re.compile(r"-XX:[+-]Use\w*GC\b")  # Java does not start with two of them
# Between Java and Python rows are Arrow's columns. Java looks at each value's place, and whether it
# is null, several times; Spark has asked for that before it takes one.
_ARROW_JAVA = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_ADDRESS = re.compile(r"(?:spark|k8s)://(?:https?://)?(?:\[([^]]+)]|([^:,/]+)):(\d+)")
_TIME_ZONE = "spark.sql.session.timeZone"
# How we want it, wherever Spark runs; whoever says otherwise has it otherwise.
SQL_SETTINGS = {
    _TIME_ZONE: "UTC",
    # Not INT96, whose readers must guess the time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.sql.ansi.enabled": "true",
    # Of more groups it sorts all rows instead. A sketch has at most 10 kB.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
    # The default asks for links, which is a process each time; a rename is as atomic here.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
_EXECUTORS_JAVA = "spark.executor.defaultJavaOptions"
# systemd, for one, ends a service by a signal to all its processes. Java goes when this one has
# ended what it does there (``_end``), or is gone itself: its stdin is then closed.
_NOT_BY_SIGTERM = "trap '' TERM\n"
_LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def refuse_time_zone(settings: Mapping[str, str]) -> None:
    """Raise ``PipelineError`` if a Spark is to have another time zone than the tables: UTC."""
    if (zone := settings.get(_TIME_ZONE, "UTC")) not in ("UTC", "Etc/UTC", "GMT", "Z"):
        raise PipelineError(
            f"{_TIME_ZONE} is {zone}, but days and hours of the tables are those of UTC; leave "
            "that setting out"
        )


def address_for(master: str) -> str:
    """Return the address of this machine by which a cluster can reach it.

    That is the one by which this machine reaches the master; "" where the URL names no host (YARN):
    Spark then takes that of the machine's name.
    """
    for first, second, port in _ADDRESS.findall(master):
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(first or second, int(port), type=socket.SOCK_DGRAM)[0]
            with socket.socket(found[0], found[1]) as probe:
                probe.connect(found[4])  # of a datagram socket: chooses the way, sends nothing
                return str(probe.getsockname()[0])
    return ""


def is_local(master: str) -> bool:
    """Whether a master is this process's own Java: ``local``, ``local[4]``."""
    return re.match(r"local(\[|$)", master) is not None


def _driver_address(master: str, address: str) -> dict[str, str]:
    if is_local(master):
        address = "127.0.0.1"
    if not address:
        return {}
    return {"spark.driver.host": address, "spark.driver.bindAddress": address}


def _python_sockets(master: str, scratch: Path) -> dict[str, str]:
    """Return how Java and Python talk on this machine: by Unix sockets in our own folder.

    That is quicker than TCP by loopback, Spark's default, which stays where the path of a socket
    would be too long (a deep TMPDIR), and on a cluster, where the folder is not there.
    """
    if not is_local(master) or len(os.fsencode(scratch)) > _LONGEST_SCRATCH:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch),
    }


def _java_options(brief: bool, chosen: Mapping[str, str]) -> str:
    """Return ours for the driver's Java.

    Those of a cluster or a user, ``defaultJavaOptions`` and ``extraJavaOptions``, come after them.
    """
    if not brief:
        return f"{_JAVA} {_ARROW_JAVA}"
    # A cluster's own settings, in SPARK_CONF_DIR, may choose one, too.
    theirs = [chosen.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra")]
    theirs += [os.environ.get(name, "") for name in _ENVIRONMENTS_JAVA]
    ours = is_local(chosen.get("spark.master", _LOCAL)) and not _COLLECTOR.search(" ".join(theirs))
    return f"{_JAVA} {_ARROW_JAVA} {_BRIEF_JAVA} {_BRIEF_COLLECTOR if ours else ''}".rstrip()


def _executors_java(theirs: str | None) -> str:
    """Return ours for the Java of executors, and after them a cluster's or a user's: those win."""
    return f"{_ARROW_JAVA} {theirs or ''}".rstrip()


def _settings(scratch: Path) -> dict[str, str]:
    return {
        "spark.master": _LOCAL,
        "spark.app.name": "motemq pipeline",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **SQL_SETTINGS,
    }


@contextlib.contextmanager
def spark_session(
    log: Path, brief: bool = True, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop it with its Java process when the block ends.

    ``brief``: for seconds of work, for which Java's best compiler takes longer than it saves.
    ``settings``: Spark's, above ours; ``spark.master`` may be a cluster's, which then reaches this
    machine at ``address_for`` it, unless ``spark.driver.host`` says otherwise.

    Everything Java says goes to the file ``log``. Java ends by itself if we are killed: it waits
    for the end of its stdin. Raises ``PipelineError`` if there is no Java or it does not start.
    """
    chosen = dict(settings or {})
    refuse_time_zone(chosen)
    java = find_java(os.environ)
    master = chosen.get("spark.master", _LOCAL)
    _knock_at_master(master)
    address = "" if is_local(master) else address_for(master)
    with (
        scratch_folder("motemq-spark-") as scratch,
        log.open("a") as output,
        _environment(java, scratch, master, address),
    ):
        conf = SparkConf(loadDefaults=False)
        ours = {
            **_settings(scratch),
            **_python_sockets(master, scratch),
            **_driver_address(master, address),
        }
        for key, value in {**ours, **chosen}.items():
            conf.set(key, value)
        with (
            _python_side_in(output),
            _refusal_in_words(java, log),
            _java_told(scratch, _java_options(brief, chosen)),
            _interrupt_held_back() as held,
        ):
            gateway = launch_gateway(  # type: ignore[no-untyped-call]  # PySpark has no types there
                conf, {"stdout": output, "stderr": subprocess.STDOUT}
            )
        context = None
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            if held:
                raise KeyboardInterrupt
            with _python_side_in(output):
                with _refusal_in_words(java, log):
                    theirs = SparkConf(_jvm=gateway.jvm).get(_EXECUTORS_JAVA, "")
                    conf.set(_EXECUTORS_JAVA, _executors_java(theirs))
                    context = SparkContext(conf=conf, gateway=gateway)
                    # A master that takes no application stops the context some time later.
                    session = SparkSession(context)
                if not is_local(master):
                    package = str(write_package(scratch / "motemq.zip"))
                    context.addPyFile(package)
                    _have_planners_find([package], context)
                # PySpark takes Ctrl-C for a call into Java, in the middle of the one it interrupts.
                if _in_main_thread():
                    signal.signal(signal.SIGINT, on_interrupt)
                yield session
        finally:
            if _in_main_thread():
                signal.signal(signal.SIGINT, on_interrupt)
            with _python_side_in(output), warnings.catch_warnings():
                # After an interrupt PySpark may warn that Java does not answer; it is ended below.
                warnings.simplefilter("ignore", RuntimeWarning)
                if context is not None:
                    context.stop()
                gateway.shutdown()
            _end(gateway.proc)
            # PySpark keeps them for the process; the next session needs a new Java.
            SparkContext._gateway = None
            SparkContext._jvm = None


def _have_planners_find(packages: list[str], context: SparkContext) -> None:
    """Tell Python processes of the driver's Java, which plan streams, where our code is.

    They are of the executors' Python, which need not have us, and Spark gives them no files.
    """
    theirs = context.environment.get("PYTHONPATH", "")
    context.environment["PYTHONPATH"] = os.pathsep.join([*packages, *([theirs] if theirs else [])])


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _interrupt_held_back() -> Iterator[list[int]]:
    """Hold a Ctrl-C back until Java is ours to end: interrupted half-way, nobody would end it.

    Gives the list of the signals held back.
    """
    held: list[int] = []
    if not _in_main_thread():  # only the main thread is interrupted
        yield held
        return
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _python_side_in(output: IO[str]) -> Iterator[None]:
    """Send what py4j logs to Spark's log: it tells of every interrupted call with a traceback.

    It logs to the root logger; whoever has handlers there keeps them.
    """
    handler = logging.StreamHandler(output)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def _refusal_in_words(java: Java, log: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever stopped Java, the log has its words
        raise PipelineError(
            f"Spark did not start with Java {java.version} at {java.home}: "
            f"{why_java_ended(log) or of_java(error)}; Java's own words are in {log}"
        ) from error


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
def _environment(java: Java, scratch: Path, master: str, address: str) -> Iterator[None]:
    """Point Spark's scripts at our Java and interpreter, and away from the user's settings.

    Those for a cluster stay: other machines may have their Python elsewhere (PYSPARK_PYTHON), a
    machine several addresses (SPARK_LOCAL_IP), a cluster its settings (SPARK_CONF_DIR).
    """
    python, local_ip = sys.executable, "127.0.0.1"
    conf = scratch / "conf"
    conf.mkdir()
    if len(str(conf).split()) == 1:  # Spark's script would cut the path at a space
        (conf / "spark-env.sh").write_text(_NOT_BY_SIGTERM)
    if not is_local(master):
        python = os.environ.get("PYSPARK_PYTHON") or python
        local_ip = os.environ.get("SPARK_LOCAL_IP") or address
        conf = Path(os.environ.get("SPARK_CONF_DIR") or conf)
    ours = {
        "JAVA_HOME": str(java.home_for_spark(scratch)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_HOME": str(_home(scratch)),
        **({"SPARK_LOCAL_IP": local_ip} if local_ip else {}),
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    }
    with _set(ours):
        yield


@contextlib.contextmanager
def _java_told(scratch: Path, options: str) -> Iterator[None]:
    """Tell the driver's Java ``options`` while it starts, before those of the user.

    Not by the setting ``spark.driver.defaultJavaOptions``: a cluster's own would be lost.
    """
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    ours = f"-Dderby.system.home={scratch} -Dlog4j2.configurationFile={log4j.as_uri()}"
    theirs = os.environ.get(_SUBMIT_JAVA, "")
    with _set({_SUBMIT_JAVA: f"{options} {ours} {theirs}".rstrip()}):
        yield


@contextlib.contextmanager
def _set(ours: Mapping[str, str]) -> Iterator[None]:
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


def _home(scratch: Path) -> Path:
    """Return a folder that is the installed Spark without its ``python/lib/pyspark.zip``.

    Spark's Python processes would import that, compiling it each time: 1.0 s of a processor for
    each instead of 0.3 s. On a busy machine they then miss the ten seconds that Spark gives them.
    """
    home = scratch / "spark-home"
    home.mkdir()
    for entry in Path(str(pyspark.__file__)).parent.iterdir():
        if entry.name in ("bin", "data", "jars", "sbin"):
            (home / entry.name).symlink_to(entry)
    return home


@contextlib.contextmanager
def any_session(
    log: Path, brief: bool = True, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Give the Spark there is: that of ``spark-submit``, ``sc://…`` as master, else one of ours.

    The same promises as ``spark_session``; a Connect server stays when the block ends. Raises
    ``PipelineError``.
    """
    chosen = dict(settings or {})
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, whose settings hold
        chosen.pop("spark.master", None)
        with _stopped(_submitted(chosen)) as session:
            yield session
    elif chosen.get("spark.master", "").startswith("sc://"):
        with _stopped(_connected(chosen["spark.master"])) as session:
            yield session
    else:
        with spark_session(log, brief, chosen) as session:
            yield session


def _submitted(settings: Mapping[str, str]) -> SparkSession:
    """Return the session of ``spark-submit``: what its ``--conf`` says goes before ``settings``."""
    SparkContext._ensure_initialized()  # then Java's settings can be asked
    submitted = dict(SparkConf().getAll())
    chosen = {**SQL_SETTINGS, **settings, **submitted}
    refuse_time_zone(chosen)
    builder = SparkSession.builder
    for key in (*SQL_SETTINGS, *settings):
        builder = builder.config(key, chosen[key])
    builder = builder.config(_EXECUTORS_JAVA, _executors_java(chosen.get(_EXECUTORS_JAVA)))
    try:
        session = builder.getOrCreate()
    except Exception as error:  # whatever stopped Java, it has said more
        master = submitted.get("spark.master", "its master")
        raise PipelineError(f"Spark did not start at {master}: {of_java(error)}") from error
    if files := submitted.get("spark.submit.pyFiles", ""):
        paths = [urllib.parse.urlsplit(file).path for file in files.split(",")]
        _have_planners_find(paths, session.sparkContext)
    return session


def _connected(url: str) -> SparkSession:
    for package in _CONNECT_NEEDS:
        if importlib.util.find_spec(package) is None:
            raise PipelineError(
                f"to ask {url}, a Spark Connect server, the package '{package}' is needed, which "
                "is not installed; install it with: pip install 'motemq[connect]'"
            )
    _knock(url)
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except Exception as error:  # gRPC's and PySpark's errors have no common name
        raise PipelineError(
            f"no Spark Connect server answers at {url}: {str(error).splitlines()[0]}"
        ) from error
    return session


def _knock(url: str) -> None:
    """Refuse at once where nothing listens: PySpark would try for ten minutes."""
    try:
        parts = urllib.parse.urlsplit(url)
        _connect(parts.hostname or "", parts.port or _CONNECT_PORT)
    except (OSError, ValueError) as error:
        raise PipelineError(f"no Spark Connect server answers at {url}: {error}") from error


def _knock_at_master(url: str) -> None:
    """Refuse at once where no standalone master listens: Spark would try for a minute."""
    refused: Exception | None = None
    several = url.removeprefix("spark://").split(",") if url.startswith("spark://") else ()
    for each in several:  # one of them leads, the others stand by
        host, _, port = each.rpartition(":")
        try:
            _connect(host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            refused = error
        else:
            return
    if refused is not None:
        raise PipelineError(f"no Spark master answers at {url}: {refused}") from refused


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=_KNOCK_S).close()


@contextlib.contextmanager
def _stopped(session: SparkSession) -> Iterator[SparkSession]:
    try:
        yield session
    finally:
        session.stop()
