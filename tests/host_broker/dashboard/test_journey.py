"""A person at the page, real MicroPython boards (the unix port) at a real broker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from benchmarks.ports import port_for_later
from host_broker.client import connect
from tests.firmware_node.board import AgentProcess, Board
from tests.host_broker.dashboard.conftest import NewPage
from tests.host_broker.net.broker_process import BrokerProcess, broker

expect.set_options(timeout=60_000)
_READING = '{{"v": 1, "board": "kitchen", "sensor": "temperature", "unit": "C", "value": {}}}'


@pytest.fixture
def port() -> int:
    return port_for_later()


@pytest.fixture
def running(port: int) -> Iterator[BrokerProcess]:
    with broker("--listen", f"auto://127.0.0.1:{port}") as running:
        yield running


@pytest.fixture
def board(unix_port: Path, board_files: Path, tmp_path: Path) -> Board:
    folder = tmp_path / "board"
    shutil.copytree(board_files, folder)
    return Board([str(unix_port), "-X", "heapsize=160k"], folder)


def _configured(board: Board, protocol: str, port: int) -> Board:
    where = {"transport": "tcp", "host": "127.0.0.1", "port": port}
    board.configure(board="kitchen", protocol=protocol, **where)
    return board


def _state(page: Page, text: str) -> None:
    expect(page.locator("header .state")).to_contain_text(text)


def test_a_lightmq_board_comes_talks_is_called_and_goes(
    running: BrokerProcess, port: int, board: Board, new_page: NewPage
) -> None:
    page = new_page().open(port, "#/boards")
    _state(page, "live")
    expect(page.get_by_text("No board has been heard of")).to_be_visible()
    card = page.locator("[data-board=kitchen]")
    with AgentProcess(_configured(board, "lightmq", port)) as agent:
        assert agent.step("connect", client_id="kitchen")["ok"]
        expect(card.locator(".tag")).to_have_text("online")
        for value in (21.5, 23.25):
            agent.step("publish", topic="", payload=_READING.format(value), count=1)
            expect(card.locator(".readings")).to_contain_text(f"{value} C")
        expect(card).to_contain_text("temperature")
        expect(card).to_contain_text("lightmq at 127.0.0.1")

        # The board answers what it is asked with its bytes backwards.
        card.get_by_role("textbox").fill("how warm?")
        ask = card.get_by_role("button", name="Call kitchen")
        taken = agent.step("take", ask.click, kind="requests", count=1, timeout_ms=20_000)
        assert taken["count"] == 1
        expect(card.locator("output")).to_have_text("?mraw woh")

        # What is published by the page reaches the board.
        page.goto(f"http://127.0.0.1:{port}/#/topics/lightmq%2Fkitchen%2Fdown")
        page.get_by_text("Publish to this topic").click()
        form = page.locator(".topic form.publish")
        form.get_by_label("Payload").fill("lamp on")
        send = form.get_by_role("button", name="Publish")
        got = agent.step("receive", send.click, topic="", count=1, timeout_ms=20_000)
        assert got["payloads"] == ["lamp on"]
        expect(form.get_by_role("status")).to_contain_text("Published")
        expect(page.locator(".topic pre")).to_have_text("lamp on")

        page.goto(f"http://127.0.0.1:{port}/#/boards")
        expect(card.locator(".tag")).to_have_text("online")
        agent.kill()
        expect(card.locator(".tag")).to_have_text("offline")


def test_the_last_will_of_an_fmqp_board_is_pending_and_arrives(
    running: BrokerProcess, port: int, board: Board, new_page: NewPage
) -> None:
    page = new_page().open(port, "#/wills")
    expect(page.get_by_text("Nobody who is connected has left a will.")).to_be_visible()
    with AgentProcess(_configured(board, "fmqp", port)) as agent:
        assert agent.step("connect", client_id="", will=["status/kitchen", "offline"])["ok"]
        expect(page.get_by_role("link", name="status/kitchen")).to_be_visible()
        agent.step("publish", topic="status/kitchen", payload="online", count=1)
        agent.step("publish", topic="telemetry/kitchen/temperature", payload="21.5", count=1)
        page.goto(f"http://127.0.0.1:{port}/#/boards")
        card = page.locator("[data-board=kitchen]")
        expect(card.locator(".tag")).to_have_text("online")
        expect(card.locator(".readings")).to_contain_text("21.5")
        agent.kill()
        expect(card.locator(".tag")).to_have_text("offline")
    page.goto(f"http://127.0.0.1:{port}/#/wills")
    expect(page.get_by_text("Nobody who is connected has left a will.")).to_be_visible()


def test_the_broker_is_lost_and_found(running: BrokerProcess, port: int, new_page: NewPage) -> None:
    watched = new_page()
    watched.forgiven = ("WebSocket connection to", "net::ERR_CONNECTION_REFUSED")
    page = watched.open(port, "#/overview")
    _state(page, "live")
    running.process.kill()
    running.process.wait()
    _state(page, "lost, trying again")
    with broker("--listen", f"auto://127.0.0.1:{port}"):
        _state(page, "live")
        page.goto(f"http://127.0.0.1:{port}/#/topics")
        page.get_by_role("button", name="Publish …").click()
        form = page.locator("form.publish")
        form.get_by_label("Topic").fill("home/lamp")
        form.get_by_label("Payload").fill("on")
        form.get_by_role("button", name="Publish").click()
        tree = page.get_by_role("tree")
        expect(tree.get_by_role("treeitem", name="home")).to_be_visible()


def test_what_a_former_broker_had_is_not_shown_as_the_next_one_s(
    running: BrokerProcess, port: int, new_page: NewPage
) -> None:
    watched = new_page()
    watched.forgiven = ("WebSocket connection to", "net::ERR_CONNECTION_RE")
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        client.publish("alerts/kitchen/silent", json={"cleared_at": None}, retain=True)
        client.publish("status/kitchen", b"online", retain=True)
        client.publish("home/lamp", b"on", retain=True)
        client.sync()
    page = watched.open(port, "#/queues")
    expect(page.locator("nav .tag")).to_have_text("1 open")
    running.process.kill()
    running.process.wait()
    expect(page.locator("main .notice")).to_have_text("The broker does not answer.")
    with broker("--listen", f"auto://127.0.0.1:{port}"):
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            client.publish("home/door", b"shut", retain=True)
            client.sync()
        _state(page, "live")
        expect(page.locator("nav .tag")).to_have_count(0)
        page.goto(f"http://127.0.0.1:{port}/#/boards")
        expect(page.get_by_text("No board has been heard of")).to_be_visible()
        page.goto(f"http://127.0.0.1:{port}/#/topics")
        expect(page.get_by_role("treeitem", name="door")).to_be_visible()
        expect(page.get_by_role("treeitem", name="lamp")).to_have_count(0)


def test_a_connection_that_is_lost_before_the_first_answer_costs_nothing(
    running: BrokerProcess, port: int, new_page: NewPage
) -> None:
    watched = new_page()
    connections = []

    def connected(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        connections.append(socket)
        is_first = len(connections) == 1

        def pass_on(message: str | bytes) -> None:
            if is_first and isinstance(message, str) and '"subscribe","**"' in message:
                socket.close()
                server.close()
            else:
                server.send(message)

        socket.on_message(pass_on)

    watched.page.route_web_socket("**/umq", connected)
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        client.publish("home/lamp", b"on", retain=True)
        client.sync()
        page = watched.open(port, "#/topics")
        expect(page.get_by_role("treeitem", name="home")).to_be_visible()
    assert len(connections) >= 2
