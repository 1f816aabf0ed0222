"""``motemq users``: who a broker knows."""

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import click

from host_broker.access.users import User, Users, name_fault, token_hash
from host_broker.cli.access_options import chosen_file, config_option
from host_broker.cli.failure import failing_clearly
from host_broker.cli.secret import read_secret
from host_broker.net.access.access_error import AccessError
from host_broker.net.access.access_files import read_users, write_users
from host_broker.net.access.passwords import hash_password

_SHORTEST_TOKEN = 16  # characters: of a shorter one a plain hash could be guessed
_SECRET = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_file_option = click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file of users; made by 'add' if missing.",
)


@click.group()
def command() -> None:
    """Say who a broker knows, in the file that its setting access.users names.

    A running broker takes the file over at SIGHUP; whoever is connected stays, and may from then on
    do what the rules say then. Passwords are asked for, or read from standard input or a file.

    Exit codes: 0, 1 the file cannot be read or written, or there is no such user, 2 wrong usage.
    """


@command.command()
@click.argument("name")
@click.option("--password-file", type=_SECRET, metavar="FILE", help="The password; - is stdin.")
@click.option("--token", is_flag=True, help="Make a random token, and print it, once.")
@click.option("--token-file", type=_SECRET, metavar="FILE", help="The token; - is stdin.")
@click.option("--uid", type=click.IntRange(0), help="An account, for unix sockets.")
@click.option("--certificate", is_flag=True, help="A client certificate with this common name.")
@_file_option
@config_option
def add(
    name: str,
    password_file: Path | None,
    token: bool,
    token_file: Path | None,
    uid: int | None,
    certificate: bool,
    file: Path | None,
    config: Path | None,
) -> None:
    """Add the user NAME, or one more way for NAME to prove who it is.

    Without an option that is a password. People have passwords; boards and programs have tokens,
    which cost the broker nothing to check.
    """
    if fault := name_fault(name):
        raise click.UsageError(f"{name!r} is no name: {fault}")
    if token and token_file is not None:
        raise click.UsageError("--token and --token-file exclude each other; give one")
    with _changing(file, config, create=True) as users:
        user = users.get(name, User())
        made = ""
        if uid is not None:
            user = dataclasses.replace(user, uid=uid)
        if certificate:
            user = dataclasses.replace(user, certificate=True)
        if token or token_file is not None:
            made = secrets.token_urlsafe(24) if token else read_secret("token", token_file)
            if len(made) < _SHORTEST_TOKEN:
                raise click.UsageError(
                    f"a token has {_SHORTEST_TOKEN} characters or more, and is random; "
                    "--token makes one"
                )
            user = dataclasses.replace(user, token=token_hash(made))
        if password_file is not None or not (made or certificate or uid is not None):
            if user.password:
                raise AccessError(f"{name!r} has a password; motemq users passwd {name} changes it")
            encoded = hash_password(read_secret("password", password_file))
            user = dataclasses.replace(user, password=encoded)
        users[name] = user
    if token:
        click.echo(made)


@command.command()
@click.argument("name")
@click.option("--password-file", type=_SECRET, metavar="FILE", help="The password; - is stdin.")
@_file_option
@config_option
def passwd(name: str, password_file: Path | None, file: Path | None, config: Path | None) -> None:
    """Give the user NAME another password."""
    with _changing(file, config) as users:
        user = _known(users, name)
        encoded = hash_password(read_secret("password", password_file))
        users[name] = dataclasses.replace(user, password=encoded)


@command.command()
@click.argument("name")
@_file_option
@config_option
def remove(name: str, file: Path | None, config: Path | None) -> None:
    """Remove the user NAME: after SIGHUP it may nothing, connected or not."""
    with _changing(file, config) as users:
        _known(users, name)
        del users[name]


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@_file_option
@config_option
def show(as_json: bool, file: Path | None, config: Path | None) -> None:
    """List users, and how they can prove who they are."""
    with failing_clearly("users", AccessError):
        users = read_users(chosen_file(file, config, "users", "--file"))
        found = {name: list(user.proofs) for name in sorted(users) if (user := users.get(name))}
        if as_json:
            click.echo(json.dumps(found))
            return
        for name, proofs in found.items():
            click.echo(f"{name}: {', '.join(proofs) or 'no way to log in'}")


def _known(users: dict[str, User], name: str) -> User:
    user = users.get(name)
    if user is None:
        raise AccessError(f"there is no user {name!r}; 'motemq users add' adds one")
    return user


@contextlib.contextmanager
def _changing(
    file: Path | None, config: Path | None, *, create: bool = False
) -> Iterator[dict[str, User]]:
    """Give the users of a file, to be changed, while no other command changes it; then write it."""
    with failing_clearly("users", AccessError):
        path = chosen_file(file, config, "users", "--file")
        with _locked(path.resolve().parent):
            known = Users({}) if create and not path.exists() else read_users(path)
            users = {name: user for name in known if (user := known.get(name)) is not None}
            yield users
            uids = [user.uid for user in users.values() if user.uid is not None]
            tokens = [user.token for user in users.values() if user.token]
            if len(set(uids)) < len(uids) or len(set(tokens)) < len(tokens):
                raise AccessError("another user has this uid or token; nothing was changed")
            write_users(path, users)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise AccessError(f"cannot use {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
