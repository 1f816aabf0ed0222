"""Sessions of a Spark that others started: ``spark-submit``, and Spark Connect."""

import contextlib
import os
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.session import SQL_SETTINGS, spark_session

_CONNECT_PORT = 15_002  # Spark's usual one
_KNOCK_S = 10.0


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
    builder = SparkSession.builder
    for key, value in {**SQL_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connected(url: str) -> SparkSession:
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
        address = (parts.hostname or "", parts.port or _CONNECT_PORT)
        socket.create_connection(address, timeout=_KNOCK_S).close()
    except (OSError, ValueError) as error:
        raise PipelineError(f"no Spark Connect server answers at {url}: {error}") from error


@contextlib.contextmanager
def _stopped(session: SparkSession) -> Iterator[SparkSession]:
    try:
        yield session
    finally:
        session.stop()
