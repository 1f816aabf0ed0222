"""A hostile page in a browser: whatever it asks of a broker on this machine is refused."""

import base64
import hashlib
import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from host_broker.access.users import User
from host_broker.client import connect
from host_broker.net.access.access_files import write_users
from host_broker.net.access.passwords import hash_password
from tests.boards.reports.browser import browser
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_TOKEN = "a-token-of-a-test"
_PAGES = (
    ("GET", "/healthz"),
    ("GET", "/metrics"),
    ("GET", "/stats"),
    ("GET", "/journal"),
    ("GET", "/journal/0?from=0"),
    ("GET", "/backup"),
    ("GET", "/"),
    ("GET", "/dashboard/assets/x/app.js"),
    ("GET", "/dashboard/session"),
    ("POST", "/dashboard/session"),
    ("DELETE", "/dashboard/session"),
    ("GET", "/dashboard/rig"),
    ("GET", "/dashboard/rig/2026-11-26/lab/1/report"),
    ("GET", "/nowhere"),
    ("HEAD", "/stats"),
    ("OPTIONS", "/publish/home/lamp"),
    ("POST", "/publish/home/lamp"),
    ("POST", "/publish"),
    ("POST", "/wanted"),
    ("POST", "/submit"),
    ("GET", "/stats.json"),
    ("POST", "/reset_to_checkpoint?qname=q&cpname=c"),
    ("PUT", "/journal/groups/mine"),
    ("DELETE", "/journal/groups/mine"),
)
_FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},  # another port is another site
    {"Origin": "https://{host}"},  # and so is another scheme
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("kept") / "data"
    with broker("--listen", "auto://127.0.0.1:0", "--data", str(data)) as running:
        yield running


def _ask(
    running: BrokerProcess, method: str, path: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _refused(running: BrokerProcess, **headers: str) -> dict[str, float]:
    status, text = _ask(running, "GET", "/metrics", headers)
    assert status == 200
    families = {one.name: one for one in text_string_to_metric_families(text.decode())}
    return {one.labels["reason"]: one.value for one in families["motemq_http_refused"].samples}


@pytest.mark.parametrize("foreign", _FOREIGN, ids=str)
def test_every_page_refuses_what_a_foreign_page_asks(
    kept: BrokerProcess, foreign: dict[str, str]
) -> None:
    host = f"127.0.0.1:{kept.ports['auto']}"
    headers = {name: value.format(host=host) for name, value in foreign.items()}
    for method, path in _PAGES:
        status, said = _ask(kept, method, path, headers)
        assert status == 403, (method, path)
        if method != "HEAD":
            assert b"page of another site" in said


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "localhost.evil.example", "0.0.0.0", "[::]", ""]
)
def test_every_page_refuses_a_name_that_points_here(kept: BrokerProcess, host: str) -> None:
    """DNS rebinding: the page is of the same site then, but the site's name is not ours."""
    for method, path in _PAGES:
        assert _ask(kept, method, path, {"Host": host})[0] in (400, 403), (method, path)


@pytest.mark.parametrize("who", ["a token", "users"])
def test_nor_does_a_secret_help_a_name_that_points_here(who: str, tmp_path: Path) -> None:
    """Where everybody may ask, or the page has been told: it is the name that is refused."""
    if who == "users":
        write_users(tmp_path / "users.toml", {"alice": User(password=hash_password("a password"))})
        rules = '[roles.everybody]\nconnect = ["http"]\nsubscribe = ["$/info/*"]\n'
        (tmp_path / "acl.toml").write_text(rules)
        named = (f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/acl.toml")
        right = {}
    else:
        named = (f"http.token=sha256:{hashlib.sha256(_TOKEN.encode()).hexdigest()}",)
        right = {"Authorization": f"Bearer {_TOKEN}"}
    options = [word for each in (*named, "http.hosts=proxy.lan, b") for word in ("--set", each)]
    with broker("--listen", "auto://127.0.0.1:0", *options, "--ephemeral") as running:
        for host in ("evil.example", "evil.example:8765", "localhost.evil.example", ""):
            assert _ask(running, "GET", "/stats", right | {"Host": host})[0] in (400, 403), host
        for host in ("127.0.0.1", "localhost:1", "[::1]", "proxy.lan", "Proxy.LAN:80", "b"):
            assert _ask(running, "GET", "/stats", right | {"Host": host})[0] == 200, host


@pytest.mark.parametrize("path", ["/journal/0?from=0", "/backup"])
def test_no_answer_to_head_has_a_body(kept: BrokerProcess, path: str) -> None:
    """A client that keeps its connection would take it for the next answer."""
    with connect(f"fmqp://127.0.0.1:{kept.ports['auto']}") as client:
        client.publish("a", b"in the journal", confirm=True)
    asked = f"HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with kept.raw("auto") as peer:
        peer.sendall(asked.encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
    head, blank, body = answer.partition(b"\r\n\r\n")
    assert (head.startswith(b"HTTP/1.1 "), blank, body) == (True, b"\r\n\r\n", b"")


def test_programs_and_what_a_person_types_are_let_in(kept: BrokerProcess) -> None:
    port = kept.ports["auto"]
    for headers in (
        {},
        {"Host": f"localhost:{port}"},
        {"Host": f"[::1]:{port}"},
        {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert _ask(kept, "GET", "/stats", headers)[0] == 200


def test_nothing_that_is_gotten_changes_anything(kept: BrokerProcess) -> None:
    def state() -> tuple[object, object]:
        journal = json.loads(_ask(kept, "GET", "/journal", {})[1])  # what waits is written then
        stats = json.loads(_ask(kept, "GET", "/stats", {})[1])
        return stats, journal

    assert _ask(kept, "POST", "/publish/home/lamp?retain=true", {}, b"on")[0] == 200
    before = state()
    for _, path in _PAGES:
        for method in ("GET", "HEAD"):
            for query in ("", "?retain=true", "?_method=DELETE&method=POST"):
                _ask(kept, method, path.partition("?")[0] + query, {}, b"")
    assert state() == before


def test_not_with_a_token_either(tmp_path: Path) -> None:
    """A browser may have been told the token, or the password, and says it by itself."""
    digest = hashlib.sha256(_TOKEN.encode()).hexdigest()
    options = ("--listen", "auto://127.0.0.1:0", "--set", f"http.token=sha256:{digest}")
    right = {"Authorization": f"Bearer {_TOKEN}"}
    with broker(*options, "--ephemeral") as running:
        assert _ask(running, "GET", "/stats", right)[0] == 200
        for foreign in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert _ask(running, "GET", "/stats", right | foreign)[0] == 403
            assert _ask(running, "POST", "/publish/t", right | foreign, b"x")[0] == 403
        assert _ask(running, "GET", "/stats", {})[0] == 401
        assert _refused(running, **right) == {"foreign page": 4.0, "no token": 1.0}


def test_not_with_a_password_either(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    write_users(users, {"alice": User(password=hash_password("a password"))})
    rules = tmp_path / "acl.toml"
    rules.write_text('[principals.alice]\nconnect = ["http"]\nsubscribe = ["$/info/*"]\n')
    options = ("--set", f"access.users={users}", "--set", f"access.rules={rules}", "--ephemeral")
    right = {"Authorization": "Basic " + base64.b64encode(b"alice:a password").decode()}
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        assert _ask(running, "GET", "/healthz", right)[0] == 200
        assert _ask(running, "GET", "/metrics", right)[0] == 200
        assert _ask(running, "GET", "/backup", right)[0] == 403  # the rules say nothing of it
        assert (
            _ask(running, "GET", "/healthz", right | {"Origin": "https://evil.example"})[0] == 403
        )
        assert _ask(running, "GET", "/healthz", {})[0] == 401
        assert _ask(running, "GET", "/metrics", {})[0] == 401
        code, said = running.end()
    assert code == 0
    assert said.splitlines() == [
        "broker: 'alice' at 127.0.0.1 may not journal '**': no rule lets 'alice' journal there",
        "broker: 'anonymous' at 127.0.0.1 may not connect by HTTP: no rule lets 'anonymous' "
        "connect there",
    ]


_ATTACK = """<!doctype html><title>free kittens</title>
<script>
const at = "http://127.0.0.1:PORT";
const quiet = {mode: "no-cors"};
const post = {mode: "no-cors", method: "POST", body: "x"};
const ask = async (path, how) => {
  try { return (await fetch(at + path, how)).type; } catch (error) { return "refused"; }
};
window.attack = async () => [
  await ask("/stats"),
  await ask("/journal", quiet),
  await ask("/publish/owned", post),
  await ask("/journal/groups/mine", {method: "DELETE"}),
  await new Promise(done => {
    const script = document.createElement("script");
    script.onload = () => done("ran"); script.onerror = () => done("refused");
    script.src = at + "/stats"; document.head.append(script);
  }),
];
</script>
"""


def test_a_real_browser_with_a_hostile_page(kept: BrokerProcess) -> None:
    page = _ATTACK.replace("PORT", str(kept.ports["auto"])).encode()

    class Hostile(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    before = _refused(kept).get("foreign page", 0.0)
    published = json.loads(_ask(kept, "GET", "/stats", {})[1])["publications"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with browser() as chromium:
                chromium.open(f"http://127.0.0.1:{server.server_port}/", width=800)
                got = chromium.ask("attack()", wait=True)
        finally:
            server.shutdown()
            thread.join()
    # The page does not even see that there is an answer; that it was a refusal the counter says.
    assert got == ["refused"] * 5
    until(lambda: _refused(kept).get("foreign page", 0.0) >= before + 5)
    stats = json.loads(_ask(kept, "GET", "/stats", {})[1])
    assert stats["publications"] == published


def test_an_extension_of_the_browser_reads_and_does_not_publish(
    kept: BrokerProcess, tmp_path: Path
) -> None:
    """One that its user lets ask every address is no page: nothing says that a GET is its."""
    hosts = ["http://127.0.0.1/*"]
    manifest = {"manifest_version": 3, "name": "x", "version": "1", "host_permissions": hosts}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "page.html").write_text("<!doctype html><title>x</title>")
    at = f"http://127.0.0.1:{kept.ports['auto']}"
    with browser() as chromium:
        chromium.open_extension(tmp_path, "page.html")
        read = chromium.ask(f"fetch('{at}/stats').then(got => got.text())", wait=True)
        published = chromium.ask(
            f"fetch('{at}/publish/owned', {{method: 'POST'}}).then(got => got.status)", wait=True
        )
    assert "publications" in json.loads(read)
    assert published == 403
