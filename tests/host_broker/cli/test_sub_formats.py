"""``motemq sub --format``, ``--pretty`` and ``--no-newline``, hearing a real broker."""

import json
import time
from datetime import datetime

import pytest

from tests.host_broker.cli.processes import ended, fmqp, run, subscribed


def test_a_format(url: str) -> None:
    with fmqp(url) as client:
        client.publish("format/kept", b"\x01\xff", retain=True)
        client.sync()
        pattern = r"%%|%8t|%-12t|%.3t|%p|%x|%X|%l|%03l|%r%w|@@\\t"
        process = subscribed(url, "format/*", "-C", "2", "-F", pattern)
        client.publish("format/b", b"x y", will=True)
    rows = [
        rb"%|format/kept|format/kept |for|\x01\xff|01ff|01FF|2|002|10|@\t",
        rb"%|format/b|format/b    |for|x y|782079|782079|3|003|01|@\t",
    ]
    assert ended(process) == (0, b"\n".join(rows) + b"\n", b"")


def test_times_in_a_format(url: str) -> None:
    before = time.time()
    process = subscribed(url, "timed", "-C", "1", "-F", "%U %I @s @N @Y-@m-@d")
    with fmqp(url) as client:
        client.publish("timed", b"x")
    code, stdout, _ = ended(process)
    assert code == 0
    unix, iso, seconds, nanoseconds, date = stdout.decode().split()
    assert before <= float(unix) <= time.time()
    assert unix == f"{seconds}.{nanoseconds}"
    moment = datetime.fromisoformat(iso)
    assert moment.timestamp() == int(seconds)
    assert date == moment.strftime("%Y-%m-%d")


def test_json_for_people_and_without_line_ends(url: str) -> None:
    for option, check in (
        (["--json", "--pretty"], lambda out: out.count(b"\n") > 5 and json.loads(out)),
        (["-F", "%p;", "-N"], lambda out: out == b"x;"),
        (["-N"], lambda out: out == b"x"),
    ):
        process = subscribed(url, "pretty", "-C", "1", *option)
        with fmqp(url) as client:
            client.publish("pretty", b"x")
        code, stdout, _ = ended(process)
        assert code == 0
        assert check(stdout), stdout


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("100%", "'%' is no sequence"),
        ("%q", "there is no '%q'; there are: %I"),
        ("@?", "there is no '@?'"),
        (r"\q", r"there is no '\q'"),
    ],
)
def test_a_format_that_cannot_be(url: str, pattern: str, words: str) -> None:
    done = run("sub", url, "t", "--format", pattern)
    assert done.returncode == 2
    assert words in done.stderr.decode()
