"""The dashboard's page and its files by HTTP, and logging in: what a browser is given, and whom."""

import contextlib
import hashlib
import http.client
import json
import re
import signal
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from host_broker.access.users import User, token_hash
from host_broker.net.access.access_files import write_users
from host_broker.net.access.passwords import hash_password
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.certificates import Authority

_PASSWORD, _TOKEN = "swordfish", "a-token-of-many-letters"
_ALICE = User(password=hash_password(_PASSWORD))
_RULES = """
[roles.everybody]
subscribe = ["$/info/*"]
publish = ["free/**"]
[principals.alice]
connect = ["http"]
[principals.kitchen]
connect = ["http"]
"""
_SESSION = "/dashboard/session"
_IMPORT = re.compile(r'^(?:import|export)\b[^;"]*?\bfrom\s*"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> str:
        return self.headers["Set-Cookie"].partition(";")[0]


def _ask(
    port: int,
    method: str,
    path: str,
    headers: Mapping[str, str] = {},
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> _Answer:
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=tls)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return _Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def _log_in(
    port: int, user: str, secret: str, headers: Mapping[str, str] = {}, **more: Any
) -> _Answer:
    body = json.dumps({"user": user, "secret": secret}).encode()
    headers = {"Content-Type": "application/json", **headers}
    return _ask(port, "POST", _SESSION, headers, body, **more)


@contextlib.contextmanager
def _with_users(folder: Path, *settings: str) -> Iterator[BrokerProcess]:
    users = {
        "alice": _ALICE,
        "kitchen": User(token=token_hash(_TOKEN)),
        "bob": _ALICE,
    }
    write_users(folder / "users.toml", users)
    (folder / "acl.toml").write_text(_RULES)
    named = [f"access.users={folder}/users.toml", f"access.rules={folder}/acl.toml", *settings]
    options = [word for each in named for word in ("--set", each)]
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        yield running


@pytest.fixture(scope="module")
def free() -> Iterator[int]:
    """The port of a broker without users."""
    with broker("--listen", "auto://127.0.0.1:0") as running:
        yield running.ports["auto"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker with users."""
    with _with_users(tmp_path_factory.mktemp("guarded")) as running:
        yield running.ports["auto"]


# ---- the page and its files ----


def test_the_page_runs_nothing_but_files_of_the_broker(free: int) -> None:
    page = _ask(free, "GET", "/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(
        rule.strip().partition(" ")[::2]
        for rule in page.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    text = page.body.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", text)
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"


def test_the_page_is_asked_for_again_and_its_files_never(free: int) -> None:
    page = _ask(free, "GET", "/")
    assert page.headers["Cache-Control"] == "no-cache"
    again = _ask(free, "GET", "/", {"If-None-Match": page.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    files = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert len(files) == 4
    for file in files:
        plain = _ask(free, "GET", file)
        assert plain.status == 200
        assert plain.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        zipped = _ask(free, "GET", file, {"Accept-Encoding": "gzip, br"})
        assert zipped.headers["Content-Encoding"] == "gzip"
        assert len(zipped.body) < len(plain.body)
        assert "frame-ancestors 'none'" in plain.headers["Content-Security-Policy"]


def test_all_that_a_file_imports_is_there(free: int) -> None:
    (app,) = re.findall(r'src="([^"]+)"', _ask(free, "GET", "/").body.decode())
    seen, todo = set(), [app]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = _ask(free, "GET", path)
        assert answer.status == 200, path
        assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
        for name in _IMPORT.findall(answer.body.decode()):
            assert name.startswith("."), f"{path} imports {name}"
            base = path.rpartition("/")[0].split("/")
            for level in name.split("/"):
                if level == "..":
                    base.pop()
                elif level != ".":
                    base.append(level)
            todo.append("/".join(base))
    assert {path.rpartition("/")[2] for path in seen} >= {"umq.js", "preact.js", "uplot.js"}


@pytest.mark.parametrize(
    "name", ["nothing.js", "../site.py", "..%2fsite.py", "%2e%2e/site.py", "__init__.py", ""]
)
def test_nothing_else_is_a_file_of_the_page(free: int, name: str) -> None:
    (style,) = re.findall(r'href="([^"]+)/style.css"', _ask(free, "GET", "/").body.decode())
    assert _ask(free, "GET", f"{style}/{name}").status in (400, 404)
    older = style.rpartition("/")[0] + "/0123456789abcdef"
    assert _ask(free, "GET", f"{older}/style.css").status == 404


def test_a_link_leads_to_the_page_and_to_nothing_else(free: int) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert _ask(free, "GET", "/", {**link, "Sec-Fetch-Dest": "document"}).status == 200
    for headers in (
        link,
        {**link, "Sec-Fetch-Dest": "iframe"},
        {**link, "Sec-Fetch-Dest": "document", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "document"},
    ):
        assert _ask(free, "GET", "/", headers).status == 403, headers
    for path in (_SESSION, "/stats", "/dashboard/rig"):
        headers = {**link, "Sec-Fetch-Dest": "document"}
        assert _ask(free, "GET", path, headers).status == 403, path


def test_a_name_that_points_here_gets_no_page(free: int) -> None:
    for path in ("/", _SESSION, "/dashboard/rig"):
        assert _ask(free, "GET", path, {"Host": f"evil.example:{free}"}).status == 403, path


# ---- logging in ----


def test_without_users_nobody_logs_in(free: int) -> None:
    said = _ask(free, "GET", _SESSION)
    assert said.json == {"let_in": True, "login": "", "principal": "", "csrf": ""}
    assert said.headers["Cache-Control"] == "no-store"
    assert _log_in(free, "alice", _PASSWORD).status == 401


def test_a_session_is_as_good_as_the_password(guarded: int) -> None:
    assert _ask(guarded, "GET", _SESSION).json == {
        "let_in": False,
        "login": "password",
        "principal": "",
        "csrf": "",
    }
    assert _ask(guarded, "GET", "/stats").status == 401
    logged_in = _log_in(guarded, "alice", _PASSWORD)
    assert logged_in.status == 200
    flags = {each.strip() for each in logged_in.headers["Set-Cookie"].split(";")[1:]}
    assert flags == {"HttpOnly", "Path=/", "SameSite=Strict"}
    cookie = {"Cookie": logged_in.cookie}
    said = _ask(guarded, "GET", _SESSION, cookie).json
    assert (said["let_in"], said["principal"]) == (True, "alice")
    assert said["csrf"] == logged_in.json["csrf"]
    assert said["csrf"] not in logged_in.cookie
    assert _ask(guarded, "GET", "/stats", cookie).status == 200
    assert _ask(guarded, "GET", "/backup", cookie).status == 403  # the rules say nothing of it
    wrong = {"Cookie": logged_in.cookie + "x"}
    assert _ask(guarded, "GET", "/stats", wrong).status == 401
    # What is said counts more than what a browser adds.
    both = {**cookie, "Authorization": "Bearer wrong"}
    assert _ask(guarded, "GET", "/stats", both).status == 401


@pytest.mark.parametrize("user", ["kitchen", ""])
def test_a_token_logs_in_with_and_without_its_name(guarded: int, user: str) -> None:
    logged_in = _log_in(guarded, user, _TOKEN)
    said = _ask(guarded, "GET", _SESSION, {"Cookie": logged_in.cookie}).json
    assert said["principal"] == "kitchen"


def test_what_is_changed_with_a_cookie_needs_the_csrf_token(guarded: int) -> None:
    logged_in = _log_in(guarded, "alice", _PASSWORD)
    cookie = {"Cookie": logged_in.cookie}
    right = {**cookie, "X-CSRF-Token": logged_in.json["csrf"]}
    for method, path in (("POST", "/publish/free/a"), ("DELETE", _SESSION), ("POST", "/wanted")):
        for headers in (cookie, {**cookie, "X-CSRF-Token": logged_in.json["csrf"][:-1]}):
            refused = _ask(guarded, method, path, headers, b"x")
            assert refused.status == 403
            assert "X-CSRF-Token" in refused.json["error"]
    assert _ask(guarded, "POST", "/publish/free/a", right, b"x").status == 200
    assert _ask(guarded, "POST", "/publish/taken", right, b"x").status == 403


def test_who_logs_out_is_out(guarded: int) -> None:
    logged_in = _log_in(guarded, "alice", _PASSWORD)
    cookie = {"Cookie": logged_in.cookie}
    gone = _ask(guarded, "DELETE", _SESSION, {**cookie, "X-CSRF-Token": logged_in.json["csrf"]})
    assert gone.status == 200
    assert "Max-Age=0" in gone.headers["Set-Cookie"]
    assert _ask(guarded, "GET", "/stats", cookie).status == 401
    assert _ask(guarded, "GET", _SESSION, cookie).json["let_in"] is False


def test_who_may_not_connect_by_http_gets_no_session(guarded: int) -> None:
    refused = _log_in(guarded, "bob", _PASSWORD)
    assert refused.status == 403
    assert "Set-Cookie" not in refused.headers


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"user=a&secret=b", 415),
        ({"Content-Type": "text/plain"}, b'{"user": "a", "secret": "b"}', 415),
        ({"Content-Type": "application/json"}, b"{", 400),
        ({"Content-Type": "application/json"}, b"[]", 400),
        ({"Content-Type": "application/json"}, b'{"user": "a"}', 400),
        ({"Content-Type": "application/json"}, b'{"user": 1, "secret": "b"}', 400),
        ({"Content-Type": "application/json"}, b'{"user": "a", "secret": ["b"]}', 400),
        ({"Content-Type": "application/json"}, b"[" * 4000, 400),
        ({"Content-Type": "application/json"}, b'"' + b"x" * 4096 + b'"', 413),
        ({"Content-Type": "application/json", "Origin": "https://evil.example"}, b"{}", 403),
    ],
)
def test_what_is_no_login(guarded: int, headers: dict[str, str], body: bytes, status: int) -> None:
    refused = _ask(guarded, "POST", _SESSION, headers, body)
    assert refused.status == status
    assert refused.json["error"]
    assert "Set-Cookie" not in refused.headers


def test_no_window_of_the_browser_asks_for_a_password(guarded: int) -> None:
    """A page that is told to use ``Basic`` would have the browser ask."""
    wrong = _log_in(guarded, "nobody", "wrong")
    assert wrong.status == 401
    assert "WWW-Authenticate" not in wrong.headers
    by_page = _ask(guarded, "GET", "/dashboard/rig", {"Sec-Fetch-Site": "same-origin"})
    assert by_page.status == 401
    assert "Basic" not in by_page.headers["WWW-Authenticate"]


def test_wrong_logins_have_to_wait_as_all_do(tmp_path: Path) -> None:
    settings = ("access.failed_logins=2", "access.login_backoff_s=30")
    with _with_users(tmp_path, *settings) as running:
        port = running.ports["auto"]
        answers = [_log_in(port, "alice", f"wrong {each}").status for each in range(3)]
        assert answers == [401, 401, 429]
        assert int(_log_in(port, "alice", _PASSWORD).headers["Retry-After"]) >= 1
        assert _log_in(port, "kitchen", _TOKEN).status == 200  # another one is not kept waiting


def test_by_tls_the_cookie_stays_there(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.issue("server")
    write_users(tmp_path / "users.toml", {"alice": _ALICE})
    (tmp_path / "acl.toml").write_text(_RULES)
    named = (f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/acl.toml")
    options = [word for each in named for word in ("--set", each)]
    with broker(
        "--listen", f"autos://127.0.0.1:0?cert={certificate}&key={key}", *options
    ) as running:
        port = running.ports["autos"]
        tls = ssl.create_default_context(cafile=str(authority.file))
        logged_in = _log_in(port, "alice", _PASSWORD, tls=tls)
        name, *flags = (each.strip() for each in logged_in.headers["Set-Cookie"].split(";"))
        assert name.startswith(f"__Host-motemq_session_{port}=")
        assert set(flags) == {"HttpOnly", "Path=/", "SameSite=Strict", "Secure"}
        cookie = {"Cookie": logged_in.cookie}
        assert _ask(port, "GET", "/stats", cookie, tls=tls).status == 200
        without = {"Cookie": logged_in.cookie.removeprefix("__Host-")}
        assert _ask(port, "GET", "/stats", without, tls=tls).status == 401


def test_http_token_logs_in(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    digests = [hashlib.sha256(each.encode()).hexdigest() for each in (_TOKEN, "another")]
    config.write_text(f'[http]\ntoken = "sha256:{digests[0]}"\n')
    with broker("--listen", "auto://127.0.0.1:0", "--config", str(config)) as running:
        port = running.ports["auto"]
        said = _ask(port, "GET", _SESSION).json
        assert (said["let_in"], said["login"]) == (False, "token")
        assert _ask(port, "GET", "/").status == 200
        assert _ask(port, "GET", "/stats").status == 401
        assert _log_in(port, "", "wrong").status == 401
        logged_in = _log_in(port, "", _TOKEN)
        cookie = {"Cookie": logged_in.cookie}
        assert _ask(port, "GET", "/stats", cookie).status == 200
        assert _ask(port, "POST", "/publish/a", cookie, b"x").status == 403
        right = {**cookie, "X-CSRF-Token": logged_in.json["csrf"]}
        assert _ask(port, "POST", "/publish/a", right, b"x").status == 200
        # Sessions end with the token.
        config.write_text(f'[http]\ntoken = "sha256:{digests[1]}"\n')
        running.process.send_signal(signal.SIGHUP)
        until(lambda: _ask(port, "GET", "/stats", cookie).status == 401)
        answers = {_log_in(port, "", f"wrong {each}").status for each in range(8)}
        assert answers == {401, 429}


def test_each_limit_of_sessions_is_a_setting(tmp_path: Path) -> None:
    limits = ("max_sessions=3", "max_sessions_of_one=2", "session_s=600", "session_longest_s=600")
    with _with_users(tmp_path, *(f"http.{each}" for each in limits)) as running:
        port = running.ports["auto"]

        def is_in(logged_in: _Answer) -> bool:
            return bool(_ask(port, "GET", _SESSION, {"Cookie": logged_in.cookie}).json["let_in"])

        first, second, third = (_log_in(port, "alice", _PASSWORD) for _ in range(3))
        assert [is_in(each) for each in (first, second, third)] == [False, True, True]
        others = [_log_in(port, "kitchen", _TOKEN) for _ in range(2)]
        assert [is_in(each) for each in (second, third, *others)] == [False, True, True, True]


@pytest.mark.parametrize("limit", ["session_s", "session_longest_s"])
def test_a_session_lasts_no_longer_than_it_may(tmp_path: Path, limit: str) -> None:
    with _with_users(tmp_path, f"http.{limit}=0.001") as running:
        port = running.ports["auto"]
        cookie = {"Cookie": _log_in(port, "alice", _PASSWORD).cookie}
        until(lambda: _ask(port, "GET", "/stats", cookie).status == 401)


def test_a_new_password_ends_the_sessions_of_the_old_one(tmp_path: Path) -> None:
    with _with_users(tmp_path) as running:
        port = running.ports["auto"]
        alice, kitchen = (
            {"Cookie": _log_in(port, name, secret).cookie}
            for name, secret in (("alice", _PASSWORD), ("kitchen", _TOKEN))
        )
        assert _ask(port, "GET", "/stats", alice).status == 200
        users = {
            "alice": User(password=hash_password("another")),
            "kitchen": User(token=token_hash(_TOKEN)),
        }
        write_users(tmp_path / "users.toml", users)
        running.process.send_signal(signal.SIGHUP)
        until(lambda: _ask(port, "GET", "/stats", alice).status == 401)
        assert _ask(port, "GET", "/stats", kitchen).status == 200


def test_no_secret_of_a_session_is_logged(tmp_path: Path) -> None:
    with _with_users(tmp_path) as running:
        port = running.ports["auto"]
        logged_in = _log_in(port, "alice", _PASSWORD)
        _log_in(port, "alice", "mistyped")
        _ask(port, "GET", "/backup", {"Cookie": logged_in.cookie})
        code, said = running.end()
    assert code == 0
    secret = logged_in.cookie.partition("=")[2]
    for each in (secret, logged_in.json["csrf"], _PASSWORD, "mistyped"):
        assert each not in said
    assert "alice" in said
