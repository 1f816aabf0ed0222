"""The fault proxy as a process, between real sockets."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from boards.faults.control import Route
from boards.faults.process import FaultProxy
from boards.faults.trace import Trace

_WAIT_S = 60.0
_SILENCE_S = 0.3


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    with FaultProxy.start(tmp_path_factory.mktemp("proxy") / "proxy.jsonl") as running:
        yield running


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_WAIT_S)
        yield listener


@pytest.fixture
def route(proxy: FaultProxy, server: socket.socket, request: pytest.FixtureRequest) -> Route:
    return proxy.control.route(request.node.name, "127.0.0.1", _where(server))


def _where(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def _pair(route: Route, server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_connection(route.address, _WAIT_S) as client:
        broker, _ = server.accept()
        with broker:
            broker.settimeout(_WAIT_S)
            yield client, broker


def _is_turned_away(route: Route) -> bool:
    # The RST comes at once: perhaps before connect() has returned.
    try:
        with socket.create_connection(route.address, _WAIT_S) as client:
            client.recv(1)
    except ConnectionResetError:
        return True
    return False


def _eventually(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def _closed(route: Route) -> Trace:
    _eventually(lambda: route.traces()[-1].closed_ns > 0, "the connection was not closed")
    return route.traces()[-1]


def _is_silent(sock: socket.socket) -> bool:
    sock.settimeout(_SILENCE_S)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(_WAIT_S)
    return False


def test_forwards_both_ways_and_the_trace_has_the_times(
    route: Route, server: socket.socket
) -> None:
    before = time.monotonic_ns()
    with _pair(route, server) as (client, broker):
        client.sendall(b"hello")
        assert broker.recv(100) == b"hello"
        broker.sendall(b"welcome")
        assert client.recv(100) == b"welcome"
        client.shutdown(socket.SHUT_WR)
        assert broker.recv(100) == b""
        broker.sendall(b"bye")  # the other way is still open
        assert client.recv(100) == b"bye"
    trace = _closed(route)
    assert (trace.from_client_bytes, trace.to_broker_bytes) == (5, 5)
    assert (trace.from_broker_bytes, trace.to_client_bytes) == (10, 10)
    assert (trace.client_ended, trace.broker_told) == ("fin", "fin")
    assert (trace.broker_ended, trace.client_told) == ("fin", "fin")
    assert not trace.cut
    assert before < trace.opened_ns <= trace.dialled_ns <= trace.to_broker_ns
    assert trace.opened_ns <= trace.from_client_ns <= trace.to_broker_ns
    assert trace.to_broker_ns <= trace.client_ended_ns <= trace.closed_ns < time.monotonic_ns()


def test_a_megabyte_passes_a_slow_reader_whole(route: Route, server: socket.socket) -> None:
    data = os.urandom(1 << 20)
    got = b""
    with _pair(route, server) as (client, broker):
        client.setblocking(False)
        rest = memoryview(data)
        until = time.monotonic() + _WAIT_S
        while len(got) < len(data):
            assert time.monotonic() < until
            if rest:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[client.send(rest[:50_000]) :]
            broker.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                got += broker.recv(30_000)
    assert got == data


def test_a_rst_of_one_side_is_a_rst_for_the_other(route: Route, server: socket.socket) -> None:
    with _pair(route, server) as (client, broker):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        with pytest.raises(ConnectionResetError):
            broker.recv(1)
    trace = _closed(route)
    assert (trace.client_ended, trace.broker_told, trace.cut) == ("rst", "rst", False)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_cut_is_a_fin_or_a_rst_for_both(how: str, route: Route, server: socket.socket) -> None:
    with _pair(route, server) as (client, broker):
        client.sendall(b"x")
        assert broker.recv(1) == b"x"
        at_ns, count = route.cut("fin" if how == "fin" else "rst")
        assert count == 1
        for sock in (client, broker):
            if how == "fin":
                assert sock.recv(1) == b""
            else:
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
    trace = _closed(route)
    assert (trace.broker_told, trace.client_told, trace.cut) == (how, how, True)
    assert trace.broker_told_ns == at_ns
    assert trace.to_broker_ns < at_ns


def test_a_black_hole_is_silent_and_then_nothing_was_lost(
    route: Route, server: socket.socket
) -> None:
    with _pair(route, server) as (client, broker):
        client.sendall(b"before")
        assert broker.recv(100) == b"before"
        since_ns = route.set_mode("black_hole")
        client.sendall(b"during")
        broker.sendall(b"answer")
        assert _is_silent(broker)
        assert _is_silent(client)
        trace = route.traces()[-1]
        assert trace.to_broker_ns < since_ns
        assert (trace.to_broker_bytes, trace.to_client_bytes) == (6, 0)
        assert (trace.broker_told, trace.client_told) == ("", "")
        route.set_mode("forward")
        assert broker.recv(100) == b"during"
        assert client.recv(100) == b"answer"


def test_an_end_in_a_black_hole_is_not_seen_before_it_is_over(
    route: Route, server: socket.socket
) -> None:
    with _pair(route, server) as (client, broker):
        route.set_mode("black_hole")
        client.close()
        assert _is_silent(broker)
        assert route.traces()[-1].client_ended == ""
        route.set_mode("forward")
        assert broker.recv(1) == b""


def test_who_comes_into_a_black_hole_is_taken_and_gets_no_answer(
    route: Route, server: socket.socket
) -> None:
    route.set_mode("black_hole")
    with socket.create_connection(route.address, _WAIT_S) as client:
        client.sendall(b"hello?")
        assert _is_silent(client)
        assert [trace.dialled_ns for trace in route.traces()] == [0]
        route.set_mode("forward")
        broker, _ = server.accept()
        with broker:
            assert broker.recv(100) == b"hello?"


def test_refused_means_that_nobody_listens_and_the_port_stays_ours(
    route: Route, server: socket.socket
) -> None:
    with _pair(route, server) as (client, broker):
        route.set_mode("refuse")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(route.address, _WAIT_S)
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind(route.address)
        client.sendall(b"who is in stays")
        assert broker.recv(100) == b"who is in stays"
    route.set_mode("forward")
    with _pair(route, server) as (client, broker):
        client.sendall(b"back")
        assert broker.recv(100) == b"back"


def test_turned_away_by_a_rst_and_the_tries_are_seen(route: Route, server: socket.socket) -> None:
    route.set_mode("reset")
    for _ in range(3):
        assert _is_turned_away(route)
    opened = [trace.opened_ns for trace in route.traces()]
    assert len(opened) == 3
    assert opened == sorted(opened)
    assert all(trace.dialled_ns == 0 and trace.cut for trace in route.traces())


def test_a_delay_is_at_least_as_long_as_asked(route: Route, server: socket.socket) -> None:
    with _pair(route, server) as (client, broker):
        route.set_mode("forward", delay_ms=200)
        began = time.monotonic()
        client.sendall(b"late")
        assert broker.recv(100) == b"late"
        assert 0.2 <= time.monotonic() - began < 5


def test_a_broker_that_is_not_there_is_a_rst(proxy: FaultProxy) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        route = proxy.control.route("nobody", "127.0.0.1", _where(unheard))
        assert _is_turned_away(route)
    trace = _closed(route)
    assert trace.dialled_ns == 0
    assert "refused" in trace.dial_error or "reached" in trace.dial_error


def test_a_route_leads_elsewhere_from_the_next_connection_on(
    route: Route, server: socket.socket
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as second,
        _pair(route, server) as (client, broker),
    ):
        second.settimeout(_WAIT_S)
        route.lead_to(_where(second))
        client.sendall(b"1")
        assert broker.recv(1) == b"1"
        with _pair(route, second) as (other_client, other_broker):
            other_client.sendall(b"2")
            assert other_broker.recv(1) == b"2"


def test_routes_do_not_touch_each_other(proxy: FaultProxy, server: socket.socket) -> None:
    one = proxy.control.route("one", "127.0.0.1", _where(server))
    two = proxy.control.route("two", "127.0.0.1", _where(server))
    with _pair(one, server) as (client, broker):
        two.set_mode("black_hole")
        assert two.cut("rst")[1] == 0
        client.sendall(b"fine")
        assert broker.recv(100) == b"fine"
    assert two.traces() == []


def test_traces_are_bounded_and_numbered(route: Route) -> None:
    route.set_mode("reset")
    for _ in range(70):
        assert _is_turned_away(route)
    _eventually(lambda: route.traces()[-1].number == 70, "70 connections were not seen")
    numbers = [trace.number for trace in route.traces()]
    assert numbers == list(range(7, 71))
    assert [trace.number for trace in route.traces(after=68)] == [69, 70]
