"""``motemq users`` and ``motemq acl``, as a person uses them."""

import json
import os
import pty
import select
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from host_broker.access.rules import Rule
from host_broker.cli import acl, users
from host_broker.net.access.access_files import read_users
from host_broker.net.access.passwords import is_password
from host_broker.net.access.rule_lines import line_of
from tests.host_broker.net.broker_process import END_S, motemq

_RULES = """\
# who may what
[roles.users]
connect = [
    "fmqp",
    "http",  # for the dashboard
]

[roles.operators]
deny.publish = ['site/alarm/**']
publish = ["site/**"]

[principals]
alice.roles = ["operators"]
bob = { publish = ["b/*"], deny = { subscribe = ["x"] } }
"""


def _users(file: Path, *arguments: str, said: str = "") -> Result:
    return CliRunner().invoke(users.command, [*arguments, "--file", str(file)], input=said)


def test_users_come_and_go(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    assert _users(file, "add", "alice", said="swordfish\n").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = _users(file, "add", "kitchen", "--token").stdout.strip()
    assert len(token) == 32
    assert _users(file, "add", "kitchen", "--certificate").exit_code == 0
    given = tmp_path / "token"
    given.write_text("0123456789abcdef\n")
    assert _users(file, "add", "ö ü", "--token-file", str(given), "--uid", "33").exit_code == 0
    listed = _users(file, "list")
    assert listed.stdout == "alice: password\nkitchen: token, certificate\nö ü: token, uid 33\n"
    assert json.loads(_users(file, "list", "--json").stdout)["kitchen"] == ["token", "certificate"]
    known = read_users(file)
    assert is_password(known.password_of("alice"), "swordfish")
    assert known.of_token(token) == "kitchen"
    text = file.read_text()
    assert not any(secret in text for secret in ("swordfish", token, "0123456789abcdef"))
    assert _users(file, "passwd", "alice", "--password-file", "-", said="fishsword").exit_code == 0
    assert is_password(read_users(file).password_of("alice"), "fishsword")
    assert _users(file, "remove", "alice").exit_code == 0
    assert list(read_users(file)) == ["kitchen", "ö ü"]


@pytest.mark.parametrize(
    ("arguments", "said", "code", "words"),
    [
        (["add", "alice"], "x\n", 1, "motemq users passwd alice changes it"),
        (["add", "a>b"], "x\n", 2, "is no name"),
        (["add", "bob"], "", 2, "the password is empty"),
        (["add", "bob"], "a:b\n", 2, "a password has no : or >"),
        (["add", "bob", "--token-file", "-"], "short\n", 2, "16 characters or more"),
        (["add", "bob", "--token", "--token-file", "-"], "", 2, "exclude each other"),
        (["add", "bob", "--uid", "7"], "", 1, "another user has this uid"),
        (
            ["add", "bob", "--password-file", "missing"],
            "",
            2,
            "cannot read missing: No such file or directory",
        ),
        (["remove", "bob"], "", 1, "there is no user 'bob'"),
        (["passwd", "bob"], "x\n", 1, "there is no user 'bob'"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    tmp_path: Path, arguments: list[str], said: str, code: int, words: str
) -> None:
    file = tmp_path / "users.toml"
    assert (
        _users(file, "add", "alice", "--uid", "7", "--password-file", "-", said="x").exit_code == 0
    )
    before = file.read_bytes()
    result = _users(file, *arguments, said=said)
    assert result.exit_code == code
    assert words in result.stderr
    assert file.read_bytes() == before


def test_a_file_is_needed(tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(users.command, ["list"])
    assert (result.exit_code, "give --file FILE" in result.stderr) == (2, True)
    config = tmp_path / "broker.toml"
    config.write_text(f"[access]\nusers = '{tmp_path}/users.toml'\n")
    result = runner.invoke(users.command, ["list", "--config", str(config)])
    assert (result.exit_code, "cannot read" in result.stderr) == (1, True)


def test_a_password_is_asked_for_at_a_terminal_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    master, slave = pty.openpty()
    argv = motemq("users", "add", "alice", "--file", str(file))
    process = subprocess.Popen(
        argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=_own_tty
    )
    os.close(slave)
    shown = b""
    for asked in (b"password: ", b"confirmation: "):
        while asked not in shown.rpartition(b"\n")[2]:
            ready, _, _ = select.select([master], [], [], END_S)
            assert ready, shown
            shown += os.read(master, 1000)
        os.write(master, b"swordfish\n")
    assert process.wait(END_S) == 0
    assert b"swordfish" not in shown
    os.close(master)
    assert is_password(read_users(file).password_of("alice"), "swordfish")


def _own_tty() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# ---- acl ----


@pytest.mark.parametrize(
    ("who", "action", "path", "code", "line", "rule"),
    [
        ("alice", "publish", "site/lamp", 0, 10, '[roles.operators] publish = "site/**"'),
        ("alice", "publish", "site/alarm/1", 1, 9, 'deny.publish = "site/alarm/**"'),
        ("alice", "connect", "http", 0, 5, '[roles.users] connect = "http"'),
        ("bob", "publish", "b/x", 0, 14, '[principals.bob] publish = "b/*"'),
        ("bob", "subscribe", "*", 1, 14, '[principals.bob] deny.subscribe = "x"'),
    ],
)
def test_explain_names_the_line(
    tmp_path: Path, who: str, action: str, path: str, code: int, line: int, rule: str
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(_RULES)
    result = CliRunner().invoke(acl.command, ["explain", who, action, path, "--rules", str(file)])
    verb = "may" if code == 0 else "may not"
    first, second = result.stdout.splitlines()
    assert (result.exit_code, first) == (code, f"{who} {verb} {action} {path}")
    assert second.startswith(f"{file}:{line}: ")
    assert second.endswith(rule)


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As what is saved on Windows does; of that, lines end otherwise, too."""
    file, known = tmp_path / "rules.toml", tmp_path / "users.toml"
    file.write_bytes(b"\xef\xbb\xbf" + _RULES.replace("\n", "\r\n").encode())
    known.touch(0o600)
    known.write_bytes(b"\xef\xbb\xbf[users.alice]\r\nuid = 7\r\n")
    files = ["--rules", str(file), "--users", str(known)]
    result = CliRunner().invoke(acl.command, ["explain", "alice", "publish", "site/lamp", *files])
    assert result.exit_code == 0, result.stderr
    assert f"{file}:10: " in result.stdout
    assert read_users(known).of_uid(7) == "alice"


def test_explain_says_why_where_no_line_does(tmp_path: Path) -> None:
    file, known = tmp_path / "rules.toml", tmp_path / "users.toml"
    file.write_text(_RULES)
    _users(known, "add", "alice", "--uid", "7")
    files = ["--rules", str(file), "--users", str(known)]
    runner = CliRunner()
    result = runner.invoke(acl.command, ["explain", "anonymous", "publish", "x", *files])
    assert (result.exit_code, result.stderr) == (1, "")
    assert "no rule lets 'anonymous' publish there" in result.stdout
    result = runner.invoke(acl.command, ["explain", "carol", "publish", "lightmq/x/up", *files])
    assert "has no user 'carol'" in result.stderr
    assert "only the broker publishes there, for the client itself" in result.stdout
    file.write_text("[roles.x]\nshout = []\n")
    result = runner.invoke(acl.command, ["explain", "alice", "publish", "x", *files])
    assert (result.exit_code, "'shout' is no action" in result.stderr) == (3, True)


def test_the_line_is_found_among_a_thousand() -> None:
    lines = ["[roles.r]", "publish = [", *(f'    "a/{number}",' for number in range(1000)), "]"]
    lines += ["[roles.s]", "publish = ['a/7']", *(f"# {number}" for number in range(500))]
    text = "\n".join(lines)
    assert line_of(text, Rule("roles.r", "publish", "a/7")) == 10
    assert line_of(text, Rule("roles.r", "publish", "a/999")) == 1002
    assert line_of(text, Rule("roles.s", "publish", "a/7")) == 1005


@pytest.mark.parametrize(
    ("spelled", "pattern"),
    [
        ('"\\"q\\"/site"', '"q"/site'),
        ('"\\u00fc/**"', "\u00fc/**"),
        ("'a\\u0041'", "a\\u0041"),
        ('"it\'s"', "it's"),
        ('"a\u2028b"', "a\u2028b"),
        ('"#/x"', "#/x"),
    ],
)
def test_a_line_is_found_however_it_is_spelled(spelled: str, pattern: str) -> None:
    """Not by what a comment says, nor by a character that ends a line elsewhere."""
    lines = ["[roles.r]  # \u2028", "deny.publish = [", f"    'other',  # {spelled}"]
    text = "\n".join([*lines, f"    {spelled},", "]"])
    assert line_of(text, Rule("roles.r", "publish", pattern, denies=True)) == 4
