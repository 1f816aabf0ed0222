"""The fault proxy's life as a process, its log, and what it refuses to do."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.faults.control import ProxyControl, ProxyError, Route
from boards.faults.process import FaultProxy, can_stand_at

_WAIT_S = 60.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    with FaultProxy.start(tmp_path_factory.mktemp("proxy") / "proxy.jsonl") as running:
        yield running


@pytest.fixture(scope="module")
def route(proxy: FaultProxy) -> Route:
    return proxy.control.route("here", "127.0.0.1", "127.0.0.1:9")


def _eventually(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def test_it_can_stand_only_where_this_machine_is() -> None:
    assert can_stand_at("127.0.0.1")
    assert can_stand_at("localhost")
    assert not can_stand_at("192.0.2.1")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"do": "mode", "route": "nowhere", "mode": "forward"}, "no route 'nowhere'"),
        ({"do": "mode", "mode": "explode"}, "no mode 'explode'"),
        ({"do": "mode", "mode": "forward", "delay_ms": -1}, "delay_ms is -1"),
        ({"do": "cut", "how": "axe"}, "not fin or rst"),
        ({"do": "upstream", "to": "here"}, "not HOST:PORT"),
        ({"do": "route", "host": "127.0.0.1", "to": "127.0.0.1:1"}, "no new route"),
        ({"do": "dance"}, "NAME one of"),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(
    request_: dict[str, str], reason: str, proxy: FaultProxy, route: Route
) -> None:
    what = request_.pop("do")
    with pytest.raises(ProxyError, match=reason):
        proxy.control.call(what, **{"route": route.name, **request_})


def test_a_host_that_is_not_ours_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ProxyError, match=r"cannot listen at '192\.0\.2\.1'"):
        proxy.control.route("far", "192.0.2.1", "192.0.2.1:8765")


def test_a_proxy_that_is_gone_is_an_error_not_a_verdict(tmp_path: Path) -> None:
    with FaultProxy.start(tmp_path / "proxy.jsonl") as running:
        port = running.port
    with pytest.raises(ProxyError, match="does not answer 'cut'"):
        ProxyControl(port, timeout_s=5).call("cut", route="x", how="fin")


def test_the_log_has_every_opening_and_end(tmp_path: Path) -> None:
    log = tmp_path / "proxy.jsonl"
    with FaultProxy.start(log) as running, socket.create_server(("127.0.0.1", 0)) as server:
        broker = f"127.0.0.1:{server.getsockname()[1]}"
        route = running.control.route("vpico-1", "127.0.0.1", broker)
        with socket.create_connection(route.address, _WAIT_S):
            broker_side, _ = server.accept()
            route.cut("rst")
            broker_side.close()
        _eventually(lambda: route.traces()[-1].closed_ns > 0, "the connection was not closed")
    text = log.read_text()
    assert '"event": "opened", "number": 1' in text
    assert '"event": "cut", "how": "rst", "count": 1' in text
    assert '"broker_told": "rst"' in text


def test_the_proxy_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from boards.faults.process import FaultProxy\n"
        "running = FaultProxy.start(Path(sys.argv[1]))\n"
        "print(running.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait(_WAIT_S)
    _eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists(), "the proxy lives on")
