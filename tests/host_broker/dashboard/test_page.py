"""The dashboard in a real browser: what it shows, to whom, how it looks; and nobody owns it."""

import contextlib
import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, WebSocket, expect

from host_broker.access.users import User, name_fault, token_hash
from host_broker.client import connect
from host_broker.net.access.access_files import write_users
from host_broker.printable import printable_lines
from host_broker.protocols.fmqp.spelling import encode_publication
from tests.boards.reports.browser import find_browser
from tests.host_broker.dashboard.conftest import NewPage
from tests.host_broker.dashboard.packages import node_modules
from tests.host_broker.dashboard.scenery import NAMES, PRINCIPALS, VIEWS, hostile, ordinary
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.hostile_names import harm

expect.set_options(timeout=60_000)
_TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with ordinary(tmp_path_factory.mktemp("ordinary")) as running:
        yield running.ports["auto"]


def _shown(page: Page, view: str) -> None:
    """Wait until a view shows what the broker has told."""
    expect(page.locator("header .state")).to_contain_text("live")
    marks = {
        "overview": "text=vpico-1/temperature",
        "boards": "[data-board=kitchen]",
        "topics": "[role=treeitem] >> text=plan",
        "clients": "td >> text=kitchen",
        "queues": "td >> text=jobs",
        "retained": "td >> text=home/kitchen/lamp",
        "wills": "td >> text=status/vpico-1",
        "journal": "text=Consumer groups >> nth=0",
        "alerts": "td >> text=silent",
        "rig": "td >> text=the port /dev/pts/7",
    }
    if view == "overview":
        expect(page.locator(".figure dd").first).not_to_have_text("\N{EN DASH}")
        return
    expect(page.locator(marks[view]).first).to_be_visible()


def _go(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = `#/${view}` }", view)
    _shown(page, view)


def test_every_view_shows_what_there_is(port: int, new_page: NewPage) -> None:
    page = new_page().open(port)
    for view in VIEWS:
        _go(page, view)
    _go(page, "queues")
    row = page.locator("tr", has_text="jobs")
    expect(row.locator("td").nth(1)).to_have_text("5")
    exchange = page.get_by_role("region", name="Exchanges").locator("tr", has_text="news")
    expect(exchange.locator("td").nth(2)).to_have_text("1")
    _go(page, "clients")
    expect(page.locator("tr", has_text="dashboard")).to_contain_text("umq")
    page.get_by_role("button", name="Ping kitchen").click()
    expect(page.locator("tr", has_text="kitchen").get_by_role("status")).to_contain_text("ms")
    unnamed = page.locator("tr", has_text="connection").first
    unnamed.get_by_role("button", name="Ping").click()
    expect(unnamed.get_by_role("status")).to_contain_text("cannot be asked that: it speaks FMQP")


def test_boards_that_were_heard_before_the_broker_s_last_start_are_there(
    tmp_path: Path, new_page: NewPage
) -> None:
    """As after ``motemq demo --keep``: of boards that are gone there is only the journal."""
    arguments = ("--listen", "auto://127.0.0.1:0", "--data", str(tmp_path))
    with broker(*arguments) as running:
        port = running.ports["auto"]
        with connect(f"lightmq://127.0.0.1:{port}/pantry") as board:
            board.sync()
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            body = json.dumps({"sensor": "temperature", "value": 21.5, "unit": "degC"})
            client.publish("telemetry/cellar/temperature", body.encode(), confirm=True)
            client.publish("telemetry/cellar/raw", b"\xff\xfe\x00", confirm=True)  # is no text
        assert running.end()[0] == 0
    with broker(*arguments) as running:
        page = new_page().open(running.ports["auto"], "#/boards")
        cellar = page.locator("[data-board=cellar]")
        expect(cellar).to_contain_text("not heard now")
        expect(cellar).to_contain_text("21.5 degC")
        expect(cellar.locator("li", has_text="raw").locator(".value")).to_have_text("ff fe 00")
        expect(page.locator("[data-board=pantry]")).to_contain_text("last heard")
        with connect(f"lightmq://127.0.0.1:{running.ports['auto']}/pantry"):
            expect(page.locator("[data-board=pantry]")).to_contain_text("online")


def test_a_payload_is_seen_in_every_format(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics/home%2Fmeter")
    seen = page.locator(".topic pre")
    expect(seen).to_contain_text('"kWh": 1234.5')
    expect(page.locator(".topic .payload .bar")).to_contain_text("CBOR")
    choice = page.get_by_label("Seen as")
    choice.select_option("hex")
    expect(seen).to_contain_text("000000  a1 63 6b 57 68")
    choice.select_option("JSON")
    expect(page.locator(".topic .notice")).to_contain_text("This is no JSON")
    page.goto(f"http://127.0.0.1:{port}/#/topics/home%2Fplan")
    expect(page.locator(".topic pre")).to_contain_text('"floors": 2')
    page.goto(f"http://127.0.0.1:{port}/#/topics/telemetry%2Fvpico-1%2Ftemperature")
    # Earlier ones are a curve at once: the broker remembers them.
    expect(page.get_by_role("img", name="Value, now")).to_be_visible()
    expect(page.locator(".came li")).to_have_count(50)


def test_what_is_retained_is_told_once(port: int, new_page: NewPage) -> None:
    """The past has it, too, by another clock."""
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        for body in (b"open", b"shut"):
            client.publish("home/door", body, retain=True)
            client.sync()
    page = new_page().open(port, "#/topics/home%2Fdoor")
    expect(page.locator(".topic > .soft").first).to_contain_text("retained")
    expect(page.locator(".came li .mono")).to_have_text(["shut", "open"])


_CURVE = """canvas => {
  const plot = canvas.parentElement.querySelector(".u-over").getBoundingClientRect();
  const at = canvas.getBoundingClientRect();
  const scale = canvas.height / at.height;
  const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const rows = [];
  for (let i = 0; i < data.length; i += 4) {
    if (data[i] < 60 && data[i + 2] > 150 && data[i + 3] > 200) rows.push((i / 4 / width) | 0);
  }
  const fraction = (row) => (at.top + row / scale - plot.top) / plot.height;
  return [fraction(rows[0]), fraction(rows.at(-1))];
}"""


@pytest.mark.parametrize(
    ("values", "highest", "lowest"),
    [((-10, -20), 0.45, 0.91), ((-7, -7), 0.91, 0.91), ((0, 10), 0.09, 1.0)],
)
def test_a_curve_is_seen_whole(
    port: int, new_page: NewPage, values: tuple[int, ...], highest: float, lowest: float
) -> None:
    """Also one that is below zero."""
    topic = f"frost/{'_'.join(map(str, values))}"
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        for value in values:
            client.publish(topic, str(value).encode())
            client.sync()
            time.sleep(0.3)  # a curve is as wide as its time
    page = new_page().open(port, f"#/topics/{topic.replace('/', '%2F')}")
    canvas = page.locator(".chart canvas")
    expect(canvas).to_be_visible()
    expect(page.locator(".chart .legend b")).to_have_text(str(values[-1]))
    assert canvas.evaluate(_CURVE) == pytest.approx((highest, lowest), abs=0.04)


def test_numbers_of_any_size_are_a_sparkline(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics")
    page.get_by_label("Filter topics").fill("huge")
    row = page.get_by_role("treeitem").nth(1)
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        for body in ("1.7e308", "-1.7e308", "0", '{"value": 1e999}'):
            client.publish("huge/value", body.encode())
            client.sync()
            expect(row.locator(".last")).to_have_text(body)
    expect(row.locator("polyline")).to_have_attribute("points", "1.0,2.0 42.0,18.0 83.0,10.0")


_SAMPLES = """async (offsets) => {
  const {Live} = await import(document.querySelector("script").src.replace("app.js", "live.js"));
  const live = new Live(() => {});
  const now = Date.now;
  const seen = [];
  for (const offset of offsets) {
    Date.now = () => now() + offset;
    const last = live.samples.at(-1);
    while (live.samples.at(-1) === last) await new Promise((resolve) => live.listen(resolve));
    const read = ({at, clients}) => [Math.round(at - now() / 1000), clients === null];
    seen.push(live.samples.map(read));
  }
  live.close();
  Date.now = now;
  return seen;
}"""


def test_a_clock_that_is_set_makes_no_curve_go_back(port: int, new_page: NewPage) -> None:
    page = new_page().open(port)
    day = 24 * 3600
    first, later, back, ahead = page.evaluate(_SAMPLES, [0, 60_000, -day * 1000, day * 1000])
    assert len(first) == 1
    # Nothing is known of the minute in between.
    assert [(round(at / 10), unknown) for at, unknown in later] == [
        (0, False),
        (3, True),
        (6, False),
    ]
    assert [round(at / day) for at, _ in back] == [-1]
    assert [round(at / day) for at, _ in ahead] == [1]


def test_without_a_folder_of_runs_it_says_what_to_do(tmp_path: Path, new_page: NewPage) -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running:
        page = new_page().open(running.ports["auto"], "#/rig")
        notice = page.locator(".notice")
        expect(notice).to_contain_text("where DIR is the --out of motemq rig run.")


def test_every_view_says_that_only_some_topics_are_looked_at(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics")
    for pattern, told in (("nosuch/**", "only topics of nosuch/**"), ("**", None)):
        page.get_by_label("Pattern").fill(pattern)
        page.get_by_role("button", name="Look").click()
        if told is not None:
            expect(page.locator(".tree")).to_have_text("Nothing has been published to nosuch/**.")
            page.evaluate("location.hash = '#/boards'")
            expect(page.locator("header .state")).to_contain_text(told)
            page.evaluate("location.hash = '#/topics'")
    expect(page.locator("header .state")).to_have_text("live")


def test_the_tree_is_filtered_and_walked_by_keys(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics")
    _shown(page, "topics")
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Filter topics")).to_be_focused()
    page.keyboard.type("kitchen lamp")
    items = page.get_by_role("treeitem")
    expect(items).to_have_count(3)
    page.get_by_label("Filter topics").fill("home")
    tree = page.get_by_role("tree")
    tree.focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "End", "ArrowUp"):
        page.keyboard.press(key)
    active = tree.get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active} .level")).to_have_text("picture")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"http://127.0.0.1:{port}/#/topics/home%2Fpicture")
    expect(page.locator(".topic pre")).to_contain_text("00 01 02")
    page.get_by_label("Filter topics").fill("")
    tree.focus()
    page.keyboard.press("Home")
    before = items.count()
    page.keyboard.press("ArrowLeft")
    expect(items).not_to_have_count(before)


def test_a_paused_page_stands_still_and_goes_on(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics/pause%2Fcounter")
    expect(page.locator("header .state")).to_contain_text("live")
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        client.publish("pause/counter", b"1", retain=True)
        expect(page.locator(".topic pre")).to_have_text("1")
        page.get_by_role("button", name="Pause").click()
        client.publish("pause/counter", b"2", retain=True)
        client.sync()
        expect(page.locator("header .state")).to_contain_text("not shown")
        expect(page.locator(".topic pre")).to_have_text("1")
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".topic pre")).to_have_text("2")  # what came meanwhile
        client.publish("pause/counter", b"3", retain=True)
        expect(page.locator(".topic pre")).to_have_text("3")
        expect(page.get_by_role("treeitem", name="counter").locator(".last")).to_have_text("3")


def test_what_is_published_by_the_page_arrives(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics")
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        heard = client.subscribe("from/page", confirm=True)
        page.get_by_role("button", name="Publish …").click()
        form = page.locator("form.publish")
        form.get_by_label("Topic").fill("from/page")
        for kind, typed, expected in (
            ("text", "grün\n<b>", "grün\n<b>".encode()),
            ("hex", "00 ff 7f", b"\x00\xff\x7f"),
            ("JSON", '{"a": 1}', b'{"a": 1}'),
        ):
            form.get_by_label("As").select_option(kind)
            form.get_by_label("Payload").fill(typed)
            form.get_by_role("button", name="Publish").click()
            message = heard.receive(20)
            assert message is not None and message.payload == expected
        for kind in ("hex", "JSON"):
            form.get_by_label("As").select_option(kind)
            form.get_by_label("Payload").fill("{0")
            form.get_by_role("button", name="Publish").click()
            expect(form.get_by_role("status")).to_contain_text("Not published")


# ---- who may look ----


@pytest.fixture
def guarded(guarded_broker: BrokerProcess) -> int:
    return guarded_broker.ports["auto"]


@pytest.fixture
def guarded_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    users = {"alice": User(token=token_hash(_TOKEN)), "guest": User(token=token_hash("guest"))}
    users["webonly"] = User(token=token_hash("webonly"))
    write_users(tmp_path / "users.toml", users)
    (tmp_path / "acl.toml").write_text(
        '[principals.webonly]\nconnect = ["http"]\n'
        '[principals.alice]\nconnect = ["**"]\nsubscribe = ["**"]\npublish = ["**"]\n'
        '[principals.guest]\nconnect = ["http", "umq"]\nsubscribe = ["home/**"]\n'
    )
    named = (f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/acl.toml")
    options = [word for each in named for word in ("--set", each)]
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        yield running


def _log_in(page: Page, user: str, secret: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password or token").fill(secret)
    page.get_by_role("button", name="Log in").click()


def test_somebody_logs_in_looks_and_logs_out(guarded: int, new_page: NewPage) -> None:
    watched = new_page()
    watched.forgiven = ("status of 401",)  # the console tells of the wrong login
    page = watched.open(guarded, "#/topics/home%2Flamp")
    _log_in(page, "alice", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("nobody's token")
    expect(page.get_by_label("Password or token")).to_have_value("")
    _log_in(page, "alice", _TOKEN)
    expect(page.locator("header .state")).to_contain_text("live")
    expect(page.locator("header .who")).to_have_text("alice")
    expect(page.locator(".topic .name")).to_have_text("home/lamp")  # where the link led
    page.reload()
    expect(page.locator("header .state")).to_contain_text("live")
    assert _TOKEN not in page.url
    assert page.evaluate("document.cookie") == ""  # no script sees it
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert _TOKEN not in kept and "csrf" not in kept
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_who_logs_out_is_out_in_every_tab(guarded: int, new_page: NewPage) -> None:
    page = new_page().open(guarded)
    _log_in(page, "alice", _TOKEN)
    expect(page.locator("header .state")).to_contain_text("live")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("header .state")).to_contain_text("live")
    page.get_by_role("button", name="Log out").click()
    expect(other.get_by_role("button", name="Log in")).to_be_visible()
    _log_in(other, "alice", _TOKEN)
    expect(other.locator("header .state")).to_contain_text("live")


def test_the_token_of_http_logs_in(new_page: NewPage) -> None:
    digest = hashlib.sha256(_TOKEN.encode()).hexdigest()
    token = ("--set", f"http.token=sha256:{digest}")
    with broker("--listen", "auto://127.0.0.1:0", *token) as running:
        page = new_page().open(running.ports["auto"])
        expect(page.get_by_label("User")).to_have_count(0)
        page.get_by_label("Token").fill(_TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("header .state")).to_contain_text("live")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()


def test_who_may_see_little_is_told_what_is_missing(guarded: int, new_page: NewPage) -> None:
    watched = new_page()
    watched.forgiven = ("status of 403",)  # of the rig, and of fq's exchanges
    page = watched.open(guarded, "#/topics")
    _log_in(page, "guest", "guest")
    expect(page.locator(".notice.bad")).to_contain_text("Choose a pattern")
    page.get_by_label("Pattern").fill("home/**")
    page.get_by_role("button", name="Look").click()
    expect(page.locator(".notice.bad")).to_have_count(0)
    for view in ("clients", "queues", "wills", "journal", "overview", "rig"):
        page.evaluate("view => { location.hash = `#/${view}` }", view)
        expect(page.locator(".notice.bad").first).to_be_visible()


def test_topics_are_there_when_the_rights_have_come(
    guarded_broker: BrokerProcess, tmp_path: Path, new_page: NewPage
) -> None:
    watched = new_page()
    watched.forgiven = ("status of 403",)
    watched.page.clock.install()
    page = watched.open(guarded_broker.ports["auto"], "#/topics")
    _log_in(page, "guest", "guest")
    expect(page.locator(".notice.bad")).to_contain_text("Choose a pattern")
    rules = (tmp_path / "acl.toml").read_text()
    (tmp_path / "acl.toml").write_text(rules.replace('"home/**"', '"**"'))
    guarded_broker.process.send_signal(signal.SIGHUP)
    for _ in range(60):  # until the broker has read them
        page.clock.run_for(10_000)
        if page.locator(".notice.bad").count() == 0:
            break
        page.evaluate("fetch('/dashboard/session')")
    expect(page.locator(".notice.bad")).to_have_count(0)


def test_a_browser_that_keeps_nothing_for_pages_is_told_so(
    guarded: int, chromium: Browser, tmp_path: Path
) -> None:
    (tmp_path / "Default").mkdir()
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(blocked))
    context = chromium.browser_type.launch_persistent_context(
        tmp_path, executable_path=find_browser(), chromium_sandbox=os.geteuid() != 0
    )
    try:
        page = context.new_page()
        with broker("--listen", "auto://127.0.0.1:0") as running:
            page.goto(f"http://127.0.0.1:{running.ports['auto']}/")
            expect(page.locator("header .state")).to_contain_text("live")
            page.get_by_role("button", name="Colours: auto").click()
            expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
        page.goto(f"http://127.0.0.1:{guarded}/")
        _log_in(page, "alice", _TOKEN)
        expect(page.get_by_role("alert")).to_contain_text("Allow cookies")
    finally:
        context.close()


def test_what_may_not_be_seen_is_not_asked_for_all_the_time(
    guarded: int, new_page: NewPage
) -> None:
    watched = new_page()
    watched.forgiven = ("status of 403",)
    sockets: list[WebSocket] = []
    asked: list[str] = []
    watched.page.on("websocket", lambda socket: sockets.append(socket))
    watched.page.on("request", lambda request: asked.append(request.url))
    watched.page.clock.install()
    page = watched.open(guarded, "#/queues")
    _log_in(page, "guest", "guest")
    expect(page.locator(".notice.bad").first).to_contain_text("you may not subscribe")
    (socket,) = sockets
    socket.on("framesent", lambda frame: asked.append(str(frame)))
    for tick in range(20):  # less than anything has for its answer
        if tick == 10:
            seen = len(asked)
        page.clock.run_for(500)
        page.evaluate("fetch('/dashboard/session')")
    allowed = ("/dashboard/session", "motemq/echo/")
    again = [each for each in asked[seen:] if not any(map(each.__contains__, allowed))]
    assert again == []
    with socket.expect_event("framesent", lambda frame: '"queues"' in frame):
        page.clock.run_for(30_000)  # the rights may have changed


def test_a_log_out_that_fails_is_told(guarded: int, new_page: NewPage) -> None:
    watched = new_page()
    watched.forgiven = ("net::ERR_FAILED",)
    page = watched.open(guarded)
    _log_in(page, "alice", _TOKEN)
    expect(page.locator("header .state")).to_contain_text("live")

    def fail(route: Route) -> None:
        if route.request.method == "DELETE":
            route.abort()
        else:
            route.continue_()

    page.route("**/dashboard/session", fail)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "not logged out, as the broker did not answer"
    )
    expect(page.locator("header .state")).to_contain_text("live")
    page.unroute("**/dashboard/session")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_log_out_that_the_broker_refuses_is_told_as_that(guarded: int, new_page: NewPage) -> None:
    watched = new_page()
    watched.forgiven = ("status of 403", "status of 502")
    page = watched.open(guarded)
    _log_in(page, "alice", _TOKEN)
    expect(page.locator("header .state")).to_contain_text("live")
    forged = watched.page.request.delete(f"http://127.0.0.1:{guarded}/dashboard/session")
    assert forged.status == 403  # with the session's cookie, and not what only the page knows
    answers = [(502, "<h1>Bad gateway</h1>"), (403, forged.text())]

    def refuse(route: Route) -> None:
        if route.request.method == "DELETE":
            status, body = answers.pop()
            route.fulfill(status=status, body=body)
        else:
            route.continue_()

    page.route("**/dashboard/session", refuse)
    for why in ("with a session's cookie, send", "HTTP status 502"):
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("alert")).to_contain_text(f"as the broker refused it: {why}")
    expect(page.locator("header .state")).to_contain_text("live")


def test_who_may_not_use_umq_is_told_so_and_does_not_hammer_the_broker(
    guarded: int, new_page: NewPage
) -> None:
    page = new_page().open(guarded)
    came: list[float] = []
    page.on("websocket", lambda _: came.append(time.monotonic()))
    _log_in(page, "webonly", "webonly")
    expect(page.locator("header .state")).to_contain_text("Authorization failed")
    while len(came) < 4:
        page.wait_for_event("websocket")
    assert came[3] - came[1] > 3.0  # the first one more is at once: perhaps the session is over


# ---- how it looks, and to whom ----


@pytest.mark.parametrize(
    ("width", "dark"),
    [(380, False), (380, True), (820, False), (820, True), (1440, False), (1440, True)],
)
def test_it_fits_every_screen(
    port: int, new_page: NewPage, pictures: Path, width: int, dark: bool
) -> None:
    page = new_page(width, dark=dark).open(port)
    for view in (*VIEWS, "topics/telemetry%2Fvpico-1%2Ftemperature"):
        page.evaluate("view => { location.hash = `#/${view}` }", view)
        _shown(page, view) if view in VIEWS else expect(page.locator(".topic pre")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        name = f"{view.replace('%2F', '-').replace('/', '-')}-{width}-{'dark' if dark else 'light'}"
        page.screenshot(path=pictures / f"{name}.png")


_AXE = """async () => {
  const found = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]});
  return found.violations.map(each => ({
    rule: each.id, impact: each.impact, where: each.nodes.map(node => node.target.join(" ")),
    why: each.nodes.map(node => node.failureSummary),
  }));
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(port: int, new_page: NewPage, dark: bool) -> None:
    page = new_page(dark=dark).open(port)
    script = (node_modules() / "axe-core" / "axe.min.js").read_text()
    page.evaluate(script)  # by the debugger: the page itself would not run it
    found: dict[str, Any] = {}
    for view in VIEWS:
        _go(page, view)
        if violations := page.evaluate(_AXE):
            found[view] = violations
    page.evaluate("location.hash = '#/topics/telemetry%2Fvpico-1%2Ftemperature'")
    expect(page.get_by_role("img", name="Value, now")).to_be_visible()
    if violations := page.evaluate(_AXE):
        found["topic"] = violations
    assert found == {}, json.dumps(found, indent=1)


def test_axe_finds_nothing_in_the_form_to_log_in(guarded: int, new_page: NewPage) -> None:
    page = new_page(380).open(guarded)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.evaluate((node_modules() / "axe-core" / "axe.min.js").read_text())
    assert page.evaluate(_AXE) == []


def test_colours_are_chosen_and_kept(port: int, new_page: NewPage) -> None:
    page = new_page().open(port)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Colours: auto").click()
    assert page.evaluate(background) == light
    page.get_by_role("button", name="Colours: light").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    assert page.evaluate(background) == dark


# ---- whatever anybody says ----


def test_no_alert_breaks_the_page(new_page: NewPage) -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running:
        port = running.ports["auto"]
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            strange = {"toString": 1, "valueOf": 1}
            members = ("board", "kind", "message", "raised_at", "cleared_at")
            for name in members:
                client.publish(f"alerts/strange/{name}", json={name: strange}, retain=True)
            client.publish("alerts/vpico-1/silent", json={"message": "all is well"}, retain=True)
            client.sync()
            page = new_page().open(port, "#/alerts")
            expect(page.locator("tbody tr")).to_have_count(len(members) + 1)
            expect(page.locator("main")).to_contain_text("all is well")


def test_an_alert_is_open_until_it_is_cleared(new_page: NewPage) -> None:
    """Those of a board's sensors have one topic."""
    with broker("--listen", "auto://127.0.0.1:0") as running:
        port = running.ports["auto"]
        with connect(f"fmqp://127.0.0.1:{port}") as client, connect(f"umq://127.0.0.1:{port}"):

            def say(sensor: str, cleared: str | None) -> None:
                said = {"alert": f"range {sensor}", "board": "b1", "kind": "range"}
                text = {"message": f"{sensor} is out of range", "cleared_at": cleared}
                client.publish("alerts/b1/range", json={**said, **text})
                client.sync()

            say("warmth", None)
            say("damp", None)
            say("damp", "2026-11-26T10:04:00Z")
            page = new_page().open(port, "#/alerts")
            rows, badge = page.locator("tbody tr"), page.locator("nav .tag.bad")
            expect(rows.filter(has_text="warmth")).to_contain_text("open")
            expect(rows.filter(has_text="damp")).to_contain_text("cleared")
            expect(badge).to_contain_text("1 open")
            say("warmth", "2026-11-26T10:05:00Z")
            expect(rows).to_have_count(2)
            expect(rows.filter(has_text="warmth")).to_contain_text("cleared")
            expect(badge).to_have_count(0)


def test_the_past_is_looked_for_when_there_may_be_more_of_it(new_page: NewPage) -> None:
    """To look for alerts costs the broker a walk through its journal."""
    with broker("--listen", "auto://127.0.0.1:0") as running:
        port = running.ports["auto"]
        watched = new_page()
        sockets: list[WebSocket] = []
        asked: list[str] = []
        watched.page.on("websocket", lambda socket: sockets.append(socket))
        watched.page.clock.install()
        page = watched.open(port)
        expect(page.locator("header .state")).to_contain_text("live")
        (socket,) = sockets
        socket.on("framesent", lambda frame: asked.append(str(frame)))

        def pass_s(seconds: int) -> None:
            for _ in range(2 * seconds):
                page.clock.run_for(500)
                page.evaluate("fetch('/dashboard/session')")

        pass_s(5)  # what was asked for before it was connected is asked for now
        seen = len(asked)
        pass_s(10)
        assert [each for each in asked[seen:] if '"stats"' in each]
        assert [each for each in asked[seen:] if '"history"' in each or '"alerts"' in each] == []
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            client.publish("alerts/new/one", json={"alert": "one", "cleared_at": None})
            client.sync()
        with socket.expect_event("framesent", lambda frame: '"history"' in frame):
            pass_s(10)
        with socket.expect_event("framesent", lambda frame: '"history"' in frame):
            pass_s(70)


def test_wills_are_found_among_many_who_have_none(new_page: NewPage) -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running, contextlib.ExitStack() as stack:
        for number in range(1_050):  # more than are looked at for one answer
            peer = stack.enter_context(running.raw("auto"))
            peer.sendall(encode_publication(f"nobody/{number}", b"x"))
        port = running.ports["auto"]
        client = stack.enter_context(connect(f"fmqp://127.0.0.1:{port}"))
        client.publish("status/last", b"gone", will=True)
        client.sync()
        page = new_page().open(port, "#/wills")
        expect(page.locator("td >> text=status/last")).to_be_visible()


def test_small_pages_of_the_broker_are_enough(tmp_path: Path, new_page: NewPage) -> None:
    """umq.max_page: the page asks for some of them, and says that there is more."""
    options = ("--set", "umq.max_page=3", "--data", str(tmp_path))
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        port = running.ports["auto"]
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            for number in range(70):
                client.publish(f"home/{number}", b"%d" % number, retain=True)
            client.sync()
            page = new_page().open(port, "#/retained")
            expect(page.locator("main")).to_contain_text("60, and more")
            for view in VIEWS:
                page.evaluate("view => { location.hash = `#/${view}` }", view)
                expect(page.locator("header .state")).to_contain_text("live")
                expect(page.locator(".notice.bad")).to_have_count(0)
            page.evaluate("location.hash = '#/topics/home%2F1'")
            expect(page.locator(".came li")).to_have_count(1)


def test_a_board_of_many_sensors_is_shown_in_part(new_page: NewPage) -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running:
        port = running.ports["auto"]
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            for number in range(500):
                client.publish(f"telemetry/many/{number}", b"1", retain=True)
            client.sync()
        page = new_page().open(port, "#/boards")
        card = page.locator("[data-board=many]")
        expect(card).to_contain_text("and 480 more")
        expect(card.locator(".readings li")).to_have_count(21)


def test_more_topics_than_are_remembered(new_page: NewPage) -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running:
        port = running.ports["auto"]
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            for number in range(20_003):
                client.publish(f"many/{number}", b"1", retain=True)
            client.sync()
            page = new_page().open(port)
            figure = page.locator(".figure", has_text="Topics seen").locator("dd")
            expect(figure).to_have_text("more than 20.0 k")
        page.evaluate("location.hash = '#/topics'")
        expect(page.locator("main .notice")).to_contain_text("more than 20000 topics")


def test_long_publications_of_a_topic_are_not_all_held(port: int, new_page: NewPage) -> None:
    page = new_page().open(port, "#/topics/long%2Fones")
    expect(page.locator("header .state")).to_contain_text("live")
    debugger = page.context.new_cdp_session(page)

    def used() -> int:
        debugger.send("HeapProfiler.collectGarbage")
        return int(debugger.send("Runtime.getHeapUsage")["usedSize"])

    with connect(f"fmqp://127.0.0.1:{port}") as client:
        for number in range(13):
            client.publish("long/ones", f"{number} ".encode() + b"x" * 900_000, retain=True)
            expect(page.locator(".came li").first).to_contain_text(f"{number} x")
            if number == 0:
                before = used()
        assert page.locator(".came li").count() >= 13
        assert used() - before < 6_000_000  # all that came are 11 MB
        client.publish("long/ones", b"", retain=True)
        client.sync()


def test_a_slow_page_is_not_asked_for_again_before_it_has_come(
    port: int, new_page: NewPage
) -> None:
    watched = new_page()
    asked: list[Route] = []
    watched.page.route("**/stats.json", lambda route: asked.append(route))  # nobody answers
    watched.page.clock.install()
    page = watched.open(port, "#/queues")
    _shown(page, "queues")
    page.clock.run_for(20_000)
    page.evaluate("fetch('/dashboard/session')")  # whatever was asked has been asked
    assert len(asked) == 1
    asked[0].continue_()
    expect(page.get_by_role("region", name="Exchanges")).to_be_visible()


@pytest.fixture(scope="module")
def hostile_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with hostile(tmp_path_factory.mktemp("hostile")) as running:
        yield running.ports["auto"]


def _spelled(text: str) -> str:
    """A text as the page spells it, without what separates its words."""
    return "".join(printable_lines(text).split())


def _unharmed(page: Page) -> None:
    """Fail if a text has become anything but text, or has characters that nobody sees."""
    assert page.evaluate("typeof owned") == "undefined"
    made = "document.querySelectorAll('#app :is(script, img, iframe, math, object, embed, b > b)')"
    assert page.evaluate(f"{made}.length") == 0
    handlers = """[...document.querySelectorAll('#app *')].filter(one =>
      [...one.attributes].some(each => /^on|^srcdoc$/i.test(each.name)
        || /^\\s*javascript:/i.test(each.value) && /^(href|src|action)/.test(each.name))).length"""
    assert page.evaluate(handlers) == 0
    assert page.evaluate("[...document.links].every(one => one.origin === location.origin)")
    texts = """[document.title, document.body.innerText,
      ...[...document.querySelectorAll('[title], [aria-label]')].map(
        one => `${one.title}${one.getAttribute('aria-label') ?? ''}`)].join("\\n")"""
    assert harm(page.evaluate(texts)) == ""


def _all_visited(page: Page, expected: str) -> None:
    expect(page.locator("main")).to_contain_text(expected)
    _unharmed(page)


def test_nobody_owns_the_page(hostile_port: int, new_page: NewPage) -> None:
    page = new_page(1440, 3000).open(hostile_port)
    sample = "img src=x onerror=alert(1)"
    for view in VIEWS:
        page.evaluate("view => { location.hash = `#/${view}` }", view)
        expect(page.locator("header .state")).to_contain_text("live")
        if view == "topics":
            page.get_by_label("Filter topics").fill("onerror")
        if view not in ("overview", "journal"):
            expect(page.locator("main")).to_contain_text(sample)
        _unharmed(page)


def test_no_principal_owns_the_page(hostile_port: int, new_page: NewPage) -> None:
    """By a certificate anybody may be called anything."""
    page = new_page(1440, 3000).open(hostile_port, "#/clients")
    expect(page.locator("tbody tr").nth(len(PRINCIPALS))).to_be_visible()
    heads = page.locator("thead th").all_inner_texts()
    (column,) = (at for at, head in enumerate(heads) if head.startswith("Principal"))
    shown = page.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
    assert {_spelled(name) for name in PRINCIPALS} <= {_spelled(text) for text in shown}
    _unharmed(page)


def test_no_user_owns_the_page(tmp_path: Path, new_page: NewPage) -> None:
    """Whoever looks is shown by name, let in or not."""
    names = [name for name in NAMES if not name_fault(name)]
    assert len(names) > 5
    users = {name: User(token=token_hash(f"token-{at}")) for at, name in enumerate(names)}
    write_users(tmp_path / "users.toml", users)
    (tmp_path / "acl.toml").write_text('[roles.users]\nconnect = ["http", "umq"]\n')
    named = (f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/acl.toml")
    options = [word for each in named for word in ("--set", each)]
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        watched = new_page()
        watched.forgiven = ("status of 403",)
        page = watched.open(running.ports["auto"])
        for at, name in enumerate(names):
            _log_in(page, name, f"token-{at}")
            expect(page.locator("header .who")).to_have_text(name)
            expect(page.locator("header .state")).to_contain_text("live")
            _unharmed(page)
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_role("button", name="Log in")).to_be_visible()
        (tmp_path / "acl.toml").write_text('[roles.users]\nconnect = ["umq"]\n')
        running.process.send_signal(signal.SIGHUP)
        for at, name in enumerate(names):
            _log_in(page, name, f"token-{at}")
            expect(page.get_by_role("alert")).to_contain_text("may not connect by HTTP")
            _unharmed(page)


def test_no_payload_or_topic_owns_its_page(hostile_port: int, new_page: NewPage) -> None:
    page = new_page().open(hostile_port)
    for number, name in enumerate(NAMES):
        topic = f"h{number}/{name.replace('/', '')}"
        page.evaluate("topic => { location.hash = `#/topics/${encodeURIComponent(topic)}` }", topic)
        expect(page.locator(".topic pre")).not_to_be_empty()
        _unharmed(page)
    page.evaluate("location.hash = '#/topics/properties'")
    for format in ("text", "JSON", "number", "CBOR", "MessagePack", "hex"):
        page.get_by_label("Seen as").select_option(format)
        _unharmed(page)


def test_no_link_owns_the_page(hostile_port: int, new_page: NewPage) -> None:
    watched = new_page()
    watched.forgiven = ("status of 404",)  # of runs that there are not
    page = watched.open(hostile_port)
    for name in NAMES:
        for view in ("topics", "rig/x/y", "nothing", "__proto__"):
            page.evaluate("hash => { location.hash = hash }", f"#/{view}/{name}")
            expect(page.locator("header .state")).to_contain_text("live")
            _unharmed(page)
