"""``--property`` and ``--filter``: what is mistyped is said before there is a broker."""

import pytest
from click.testing import CliRunner, Result

from host_broker.cli import pub, sub

_NOBODY = "127.0.0.1:1"


def _run(command: str, *words: str, protocol: str = "micromsg2") -> Result:
    url = f"{protocol}://{_NOBODY}"
    if command == "sub":
        return CliRunner().invoke(sub.command, [url, "topic/a", *words])
    return CliRunner().invoke(pub.command, [url, "topic/a", "x", *words])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["sub", "--filter", "level"], "is not a property, = != < <= > ~ or &"),
        (["sub", "--filter", "level=>N5"], "has an operator that there is not"),
        (["sub", "--filter", "room<=Ta"], "<= of the filter b'room<=Ta' is not for text"),
        (["sub", "--filter", "room=T%"], "a % without two hexadecimal digits"),
        (["sub", *["--filter", "a=N1"] * 17], "has at most 16 filters"),
        (["pub", "--property", "level"], "write NAME=VALUE"),
        (["pub", "--property", "=N1"], "write NAME=VALUE"),
        (["pub", "--property", "level=5"], "N5.5 a number, Tkitchen text"),
        (["pub", "--property", "level=Nfive"], "'five' is no number"),
        (["pub", "--property", "level=N1e5"], "'1e5' is no number"),
        (["pub", "--property", "at=Dnoon"], "'noon' is no date of ISO 8601"),
        (["pub", "--property", "at=D9999999999999999"], "is no date"),
        (["pub", "--property", "at=D2026-11-24"], "has no timezone"),
        (["pub", "--property", "Level=N1"], "a property's name: 'Level' is not"),
        (["pub", "--property", f"n=N{10**20}"], f"n={10**20} is no number of 64 bits"),
        (["pub", "--property", "n=N" + "1" * 5000], "this one has 5000 characters"),
        (["pub", "--property", "n=N-" + "1" * 5000 + ".5"], "this one has 5003 characters"),
        (["pub", "--property", "at=D" + "1" * 5000], "1…' is no date of ISO 8601"),
        (["sub", "--filter", "n<=N" + "1" * 4000], "<= of the filter b'n<=N1111"),
        (["pub", "--property", "a=N1", "--property", "a=N2"], "there are two properties 'a'"),
        (["pub", "--property", f"a=T{'x' * 65536}"], "properties have at most 65535 bytes"),
    ],
)
def test_mistakes(words: list[str], complaint: str) -> None:
    done = _run(*words)
    assert done.exit_code == 2
    assert complaint in " ".join(done.stderr.split())


@pytest.mark.parametrize("words", [("sub", "--filter", "a=N1"), ("pub", "--property", "a=N1")])
@pytest.mark.parametrize("protocol", ["fmqp", "lightmq+fmqp"])
def test_other_protocols_say_who_has_that(words: tuple[str, ...], protocol: str) -> None:
    done = _run(*words, protocol=protocol)
    assert done.exit_code == 2
    assert "give the broker's micromsg2:// URL" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "option"), [("pub", "--property NAME=VALUE"), ("sub", "--filter FILTER")]
)
def test_help_fits_a_terminal(command: str, option: str) -> None:
    done = CliRunner().invoke({"pub": pub, "sub": sub}[command].command, ["--help"], env={})
    assert option in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
