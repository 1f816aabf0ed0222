"""The telemetry app on the unix port against the real broker."""

import json

import pytest

from host_broker.client import Client
from tests.firmware_node.board import Board
from tests.firmware_node.conftest import BrokerPorts

_SENSORS = ["temperature", "humidity", "pressure"]
_PROGRESS = [f"node: sent {n}00/600" for n in range(1, 7)]


def _collect(observer: Client, count: int) -> list[tuple[str, dict[str, object]]]:
    messages = []
    while len(messages) < count and (message := observer.receive(timeout_s=5.0)) is not None:
        messages.append((message.topic, json.loads(message.payload)))
    return messages


def _check(payloads: list[dict[str, object]], board: str) -> None:
    assert [payload["seq"] for payload in payloads] == list(range(601))
    for seq, payload in enumerate(payloads[:-1]):
        assert payload.keys() == {"v", "board", "seq", "t_ms", "sensor", "unit", "value"}
        assert (payload["v"], payload["board"]) == (1, board)
        assert payload["t_ms"] == seq * 100
        assert payload["sensor"] == _SENSORS[seq % 3]
        assert payload["unit"] == ["C", "%", "hPa"][seq % 3]
    values = [float(str(payload["value"])) for payload in payloads[:-1:3]]
    assert 18.0 <= min(values) < 19.0
    assert 24.0 < max(values) <= 25.0
    end = {"v": 1, "board": board, "seq": 600, "t_ms": 60000, "sensor": "end"}
    assert payloads[-1] == {**end, "unit": "count", "value": 600}


def test_fmqp_telemetry(fmqp_board: Board, broker: BrokerPorts) -> None:
    with broker.observer() as observer:
        observer.subscribe("telemetry/b1/*")
        observer.sync()
        assert fmqp_board.console() == ["node: connected", *_PROGRESS, "node: done 600"]
        messages = _collect(observer, 601)
    assert all(topic == f"telemetry/b1/{payload['sensor']}" for topic, payload in messages)
    _check([payload for _, payload in messages], "b1")


def test_lightmq_telemetry(lightmq_board: Board, broker: BrokerPorts) -> None:
    with broker.observer() as observer:
        observer.subscribe("lightmq/b2/up")
        observer.sync()
        assert lightmq_board.console() == ["node: connected", *_PROGRESS, "node: done 600"]
        messages = _collect(observer, 601)
    _check([payload for _, payload in messages], "b2")


def test_nothing_starts_without_autostart(board: Board) -> None:
    board.configure(board="b3", protocol="fmqp", transport="tcp", host="127.0.0.1", port=1)
    assert board.console() == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "node.json: cannot be read"),
        ("board=b1", "node.json: not a JSON object"),
        ("[]", "node.json: not a JSON object"),
        ('{"board": "b"}', 'node.json: "protocol" is missing'),
        ('{"board": "b", "protocol": "fmqp", "transport": "uart"}', '"uart" is missing'),
        (
            '{"board": "b", "protocol": "fmqp", "transport": "tcp", "host": "h"}',
            '"port" is missing',
        ),
        (
            '{"board": "b", "protocol": "x", "transport": "tcp", "host": "h", "port": 1}',
            '"protocol" is neither',
        ),
    ],
)
def test_a_wrong_configuration_is_told_in_one_line(
    board: Board, config: str | None, reason: str
) -> None:
    if config is not None:
        (board.folder / "node.json").write_text(config)
    (line,) = board.console()
    assert line.startswith("node: failed: ")
    assert reason in line


def test_no_broker_is_told_in_one_line(board: Board, unused_port: int) -> None:
    board.configure(
        board="b4",
        protocol="fmqp",
        transport="tcp",
        host="127.0.0.1",
        port=unused_port,
        keepalive_ms=100,
        connect_ms=2000,
        autostart=True,
    )
    (line,) = board.console()
    assert line.startswith("node: failed: connect: [Errno ")
