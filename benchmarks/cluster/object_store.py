"""SeaweedFS: a real S3 server, from the PyPI package."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from benchmarks.cluster.spark import die_with_parent
from benchmarks.faults.processes import Failed
from benchmarks.ports import port_for_later

START_S = 120.0
_WEED = Path(sys.executable).parent / "weed"
_KEY, _SECRET = "motemq", "not-so-secret"
_GRPC = 10_000  # a server's gRPC port is so much above its other one


@dataclass(frozen=True)
class ObjectStore:
    """A server with one bucket, ``tables``."""

    host: str
    port: int
    group: int  # of its processes

    @property
    def environment(self) -> dict[str, str]:
        """What programs are told of it."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.host}:{self.port}",
            "AWS_ALLOW_HTTP": "true",
        }

    def pause(self) -> None:
        """Let it answer nobody."""
        os.killpg(self.group, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again, also those who still wait."""
        os.killpg(self.group, signal.SIGCONT)

    def filesystem(self) -> pafs.S3FileSystem:
        """Return the store as Arrow sees it, by code that is not delta-rs's."""
        return pafs.S3FileSystem(
            access_key=_KEY,
            secret_key=_SECRET,
            endpoint_override=f"{self.host}:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def files(self, path: str) -> set[str]:
        """Return the names of all objects below a path of the bucket."""
        selector = pafs.FileSelector(f"tables/{path}", recursive=True, allow_not_found=True)
        return {each.path for each in self.filesystem().get_file_info(selector) if each.is_file}


@contextmanager
def object_store(
    folder: Path, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()
) -> Iterator[ObjectStore]:
    """Run a server while the block lasts. ``prefix``: of its command, such as ``ip netns exec``."""
    (folder / "data").mkdir(parents=True)
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports: set[int] = set()
    while len(ports) < 4:
        ports.add(port_for_later(_GRPC))
    master, volume, filer, s3 = ports
    settings = {
        "dir": folder / "data",
        "ip": host,
        "ip.bind": host,
        "master.port": master,
        "master.telemetry": "false",
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": 64,
        "volume.port": volume,
        "volume.max": 200,
        "filer.port": filer,
        "s3.port": s3,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.config": folder / "s3.json",
    }
    argv = [*prefix, str(_WEED), "-logtostderr=true", "server", "-filer", "-s3"]
    argv += [f"-{name}={value}" for name, value in settings.items()]
    log = folder / "weed.log"
    with log.open("w") as words:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    store = ObjectStore(host, s3, process.pid)
    try:
        _make_bucket(store, process, log)
        yield store
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(START_S)


def _make_bucket(store: ObjectStore, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Make the bucket as soon as the server takes it."""
    deadline = time.monotonic() + START_S
    while True:
        if process.poll() is not None:
            raise Failed(f"the object store ended: {log.read_text()}")
        try:
            with socket.create_connection((store.host, store.port), timeout=5):
                store.filesystem().create_dir("tables")
                with store.filesystem().open_output_stream("tables/first") as file:
                    file.write(b"x")
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise Failed(f"the object store does not answer: {log.read_text()}") from error
            time.sleep(0.1)
