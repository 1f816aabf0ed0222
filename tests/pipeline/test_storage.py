"""Places for tables: folders and URIs, what is refused, and what keeps a secret."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.storage import Storage, first_words, refuse_secrets

_START_S = 120.0


def test_folders_and_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert Storage.at("tables").uri == str(tmp_path / "tables")
    assert Storage.at(f"file://{tmp_path}/a").folder == tmp_path / "a"
    on_s3 = Storage.at("s3a://bucket/tables/", {"aws_endpoint_url": "http://x"})
    assert (on_s3.uri, on_s3.folder) == ("s3://bucket/tables", None)
    assert on_s3.options["aws_region"] == "eu-central-1"
    assert on_s3.given == {"aws_endpoint_url": "http://x"}
    assert on_s3.within("gold_fleet").uri == "s3://bucket/tables/gold_fleet"


def test_a_text_of_it_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
    place = Storage.at("s3://bucket/tables")
    assert place.options["aws_secret_access_key"] == "do not tell"
    assert "do not tell" not in f"{place} {place!r} {place.within('x')!r}"


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key", "AZURE_STORAGE_ACCOUNT_KEY", "aws_session_token"]
)
def test_secrets_belong_into_the_environment(name: str) -> None:
    assert name.upper() in str(refuse_secrets({name: "x"}))
    assert refuse_secrets({"aws_region": "x", "aws_endpoint_url": "y"}) is None


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("ftp://host/tables", "Unknown scheme: ftp; write a folder, s3://BUCKET/PATH"),
        ("/proc/tables", "No such file or directory"),
        ("/dev/null/tables", "Not a directory"),
    ],
)
def test_what_cannot_keep_tables_is_refused_in_one_sentence(place: str, told: str) -> None:
    with pytest.raises(PipelineError, match=f"{place} cannot keep tables: .*{told}") as caught:
        Storage.at(place).prove()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://", "s3:///tables", "gs:///tables"])
def test_a_uri_that_names_nothing(uri: str) -> None:
    with pytest.raises(PipelineError, match=f"'{uri}' names no place"):
        Storage.at(uri)
    assert Storage.at("hdfs:///tables").uri == "hdfs:///tables"  # of the cluster's own name node


def test_tables_where_there_can_be_none_are_told() -> None:
    with pytest.raises(PipelineError, match=r"ftp://host/x: Unknown scheme: ftp; write a folder"):
        Table(Storage.at("ftp://host/x"), "alerts").count()


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    Storage.at(tmp_path / "a" / "b").prove()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_store_that_lets_two_writers_win_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one: it looks whether an object is there, and writes it then."""
    (tmp_path / "tables").mkdir()  # the bucket
    port = port_for_later()
    argv = [str(Path(sys.executable).parent / "nanio"), "serve", "--data-dir", str(tmp_path)]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    named = {"ACCESS_KEY": "motemq", "SECRET_KEY": "not-so-secret"}
    env = {**os.environ, **{f"NANIO_{name}": value for name, value in named.items()}}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", named["ACCESS_KEY"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", named["SECRET_KEY"])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_S
            while True:
                assert server.poll() is None
                assert time.monotonic() < deadline
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=_START_S).close()
                    break
                time.sleep(0.05)
            with pytest.raises(PipelineError, match="commits would be lost"):
                Storage.at("s3://tables/x").prove()
        finally:
            server.kill()


def test_what_a_store_says_is_one_line() -> None:
    said = (
        "Generic S3 error\n \x1b[31m↳\x1b[0m Error performing GET http://x\n"
        " ↳ 404 Not Found\n<Error><Code>NoSuchBucket</Code><Message>It does not exist</Message>"
    )
    assert first_words(said) == "It does not exist (NoSuchBucket)"
    nobody = "Operation not supported\n ↳ an error occurred while loading credentials\n ↳ service"
    assert first_words(nobody) == (
        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    refused = "Generic S3 error\n  ↳ Error performing GET\n  ↳ Connection refused (os error 111)"
    assert first_words(refused) == "Generic S3 error: Connection refused (os error 111)"
