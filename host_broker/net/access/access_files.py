"""The files of users and rules: read whole, written whole."""

import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from host_broker.access.access import Access
from host_broker.access.backoff import LoginBackoff
from host_broker.access.rules import Rules, RulesError
from host_broker.access.sessions import LoginSessions
from host_broker.access.users import User, Users, UsersError
from host_broker.net.access.access_error import AccessError
from host_broker.registry import protocols
from host_broker.settings import Settings

_LARGEST_BYTES = 16 * 1024 * 1024
_PUBLIC = stat.S_IRWXG | stat.S_IRWXO
_HEAD = "# Users of a MoteMQ broker; 'motemq users' writes this file.\n"


def load_access(settings: Settings) -> Access:
    """Return users and rules as ``settings`` names them. Raises ``AccessError``."""
    users, rules = load_users_and_rules(settings)
    return Access(
        users,
        rules,
        [spec.client_paths for spec in protocols().values() if spec.client_paths],
        os.getuid(),
        LoginBackoff(settings.access.failed_logins, settings.access.login_backoff_s),
        LoginSessions(
            settings.http.max_sessions,
            settings.http.max_sessions_of_one,
            settings.http.session_s,
            settings.http.session_longest_s,
        ),
    )


def load_users_and_rules(settings: Settings) -> tuple[Users | None, Rules | None]:
    """Read both files; None for what is not set. Raises ``AccessError``."""
    access = settings.access
    if not access.users:
        if access.rules:
            raise AccessError("access.rules needs access.users: rules are about users")
        return None, None
    if settings.http.token:
        raise AccessError(
            "http.token and access.users exclude each other; give the token to a user: "
            "motemq users add NAME --token-file FILE"
        )
    for spec in protocols().values():
        if spec.admits is None or spec.settings is None:
            continue
        section = spec.section or spec.name
        if spec.admits(settings.section(section, spec.settings)) != "everybody":
            raise AccessError(
                f"{section}.clients and access.users exclude each other; make the clients users: "
                "motemq users add NAME --token-file FILE"
            )
    users = read_users(Path(access.users))
    return users, read_rules(Path(access.rules)) if access.rules else Rules()


def read_users(path: Path) -> Users:
    """Read a file of users. Others must not read it: hashes can be tried out elsewhere.

    Raises ``AccessError``.
    """
    document = _document(path, private=True)
    try:
        return Users.read(document)
    except UsersError as error:
        raise AccessError(f"{path}: {error}") from error


def read_rules(path: Path) -> Rules:
    """Read an ACL. Others must not write it. Raises ``AccessError``."""
    document = _document(path, private=False)
    try:
        return Rules.read(document)
    except RulesError as error:
        raise AccessError(f"{path}: {error}") from error


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Replace a file of users at once; only its owner may read it. Raises ``AccessError``."""
    lines = [_HEAD]
    for name, user in sorted(users.items()):
        lines.append(f"\n[users.{_quoted(name)}]\n")
        if user.password:
            lines.append(f"password = {_quoted(user.password)}\n")
        if user.token:
            lines.append(f"token = {_quoted(user.token)}\n")
        if user.uid is not None:
            lines.append(f"uid = {user.uid}\n")
        if user.certificate:
            lines.append("certificate = true\n")
    temporary = ""
    try:
        # A symbolic link is followed on purpose: the folder decides who may put one there.
        path = path.resolve()
        owner = path.stat() if path.exists() else None
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if owner is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write("".join(lines))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise AccessError(f"cannot write {path}: {error.strerror}") from error


def _document(path: Path, *, private: bool) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise AccessError(f"cannot read {path}: {error.strerror}") from error
    if private and mode & _PUBLIC:
        raise AccessError(f"{path} can be read by others (mode {mode & 0o777:o}): chmod 600 {path}")
    if mode & stat.S_IWOTH:
        raise AccessError(f"{path} can be written by everybody: chmod o-w {path}")
    if len(data) > _LARGEST_BYTES:
        raise AccessError(f"{path} is longer than {_LARGEST_BYTES >> 20} MiB")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # Windows' editors begin with its mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AccessError(f"{path} is not TOML: {error}") from error


def _quoted(text: str) -> str:
    """Spell a text as a basic string of TOML, which JSON's strings are."""
    return json.dumps(text)
