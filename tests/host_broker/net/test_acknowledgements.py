"""An answer to a publisher goes out when what it has published is where ``journal.ack`` says."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.bus.publication import pack
from host_broker.bus.queue import read_place
from host_broker.net.journal import segment
from host_broker.net.storage.message_store import MessageStore
from host_broker.protocols.fmqp.spelling import encode_subscription
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.micromsg2.codec import (
    spell_command_frame,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import Handshake
from host_broker.protocols.micromsg2.grammar import read_extensions
from tests.host_broker.net.gated_disk import Gate, gated_disk
from tests.host_broker.net.journal_decoder import read_journal
from tests.host_broker.net.served import Served, exactly, served, there, until


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gate, Gate]]:
    with gated_disk(monkeypatch) as made:
        yield made


class Board:
    """A LightMQ client."""

    def __init__(self, broker: Served, name: str) -> None:
        self.peer = broker.connect(protocol="lightmq")
        self.codec = Codec("client", "spec")
        broker.say(self.peer, self.codec.connect(name))
        exactly(self.peer, 4)


def subscriber(broker: Served, topic: str) -> socket.socket:
    peer = broker.connect()
    broker.say(peer, encode_subscription(topic))
    there(peer)
    return peer


def bodies(folder: Path) -> list[bytes]:
    return [message.body for part in read_journal(folder).values() for message in part]


@pytest.mark.parametrize("ack", ["written", "synced"])
def test_sendresp_waits_and_what_follows_waits_behind_it(
    tmp_path: Path, gates: tuple[Gate, Gate], ack: str
) -> None:
    gate = gates[ack == "synced"]
    with served(data=tmp_path, journal={"ack": ack, "flush_s": 60.0}) as broker:
        board = Board(broker, "board")
        others = subscriber(broker, "lightmq/board/up")
        response, pong = board.codec.sendresp(7, b""), board.codec.pong(9)
        gate.close()
        broker.say(board.peer, board.codec.send(7, b"first"))
        gate.wait_until_reached()
        # Whoever subscribes is not kept waiting.
        assert exactly(others, 6 + 16 + 5) == pack(0, b"lightmq/board/up", b"first")
        broker.say(board.peer, board.codec.ping(9))
        down = broker.connect()
        broker.say(down, pack(0, b"lightmq/board/down", b"told"))
        assert there(board.peer) == b""
        gate.open()
        assert exactly(board.peer, len(response) + len(pong)) == response + pong
        assert until(board.peer, b"told")
        assert b"first" in bodies(tmp_path / "journal")  # it was there before the response


@pytest.mark.parametrize("ack", ["written", "synced"])
@pytest.mark.parametrize("destination", [b"topic/t", b"jobs"])
def test_an_ack_of_micromsg2_waits(
    tmp_path: Path, gates: tuple[Gate, Gate], ack: str, destination: bytes
) -> None:
    """Until the journal has its message; and the queue, if it went to one."""
    gate = gates[ack == "synced"]
    said = spell_handshake(Handshake(1, 0, "board", read_extensions(b"batch-ack")))
    with served(data=tmp_path, journal={"ack": ack, "flush_s": 60.0}) as broker:
        board = broker.connect(protocol="micromsg2")
        broker.say(board, said)
        reply = spell_handshake(Handshake(1, 0, "motemq"))
        assert exactly(board, len(reply)) == reply
        gate.close()
        broker.say(board, said + spell_message(1, destination, b"", b"first"))
        gate.wait_until_reached()
        broker.say(board, spell_message(2, destination, b"", b"second"))
        assert there(board) == b""
        gate.open()
        acks = bytes.fromhex("0201020001") + bytes.fromhex("0201020002")
        assert exactly(board, len(acks)) == acks
        assert sorted(bodies(tmp_path / "journal")) == [b"first", b"second"]
        store = MessageStore(tmp_path / "retained.sqlite")
        places = [read_place(key) for key, *_ in store.queued()]
        store.close()
        assert places == ([(b"jobs", n) for n in range(3)] if destination == b"jobs" else [])


def test_what_a_queue_gives_waits_until_it_is_marked(
    tmp_path: Path, gates: tuple[Gate, Gate]
) -> None:
    """Or after a loss of power it came again as if nobody had had it. Others do not wait."""
    said = spell_handshake(Handshake(1, 0, "board", read_extensions(b"batch-ack;pubsub")))
    reply = spell_handshake(Handshake(1, 0, "motemq"))
    with served(data=tmp_path, journal={"ack": "synced", "flush_s": 60.0}) as broker:
        publisher, consumer = (broker.connect(protocol="micromsg2") for _ in range(2))
        for peer in (publisher, consumer):
            broker.say(peer, said)
            assert exactly(peer, len(reply)) == reply
        broker.say(publisher, said + spell_message(1, b"jobs", b"", b"job"))
        assert exactly(publisher, 5) == bytes.fromhex("0201020001")
        others = subscriber(broker, "a")
        gates[1].close()
        broker.say(consumer, said + spell_command_frame("subscribe", [("destination", b"jobs")]))
        gates[1].wait_until_reached()
        assert there(consumer) == b""
        broker.say(broker.connect(), pack(0, b"a", b"told"))
        assert exactly(others, 11) == pack(0, b"a", b"told")
        gates[1].open()
        job = spell_message(1, b"jobs", b"queue-number:N1", b"job")
        assert exactly(consumer, len(job)) == job


def test_a_name_is_free_when_who_has_it_hung_up_while_it_had_to_wait(
    tmp_path: Path, gates: tuple[Gate, Gate]
) -> None:
    """A board that restarts while the journal takes nothing: nobody reads that it has gone."""
    settings = {"flush_s": 60.0, "max_pending_bytes": 4000}
    with served(data=tmp_path, journal=settings) as broker:
        watcher = subscriber(broker, "lightmq/kitchen/status")
        board = Board(broker, "kitchen")
        gates[0].close()
        broker.say(board.peer, board.codec.send(1, b"read" + bytes(5000)))
        connection, _ = broker.ours(board.peer)
        assert connection.on_hold
        board.peer.sendall(board.codec.send(2, b"not read"))
        refused, accepted = board.codec.connack(4), board.codec.connack(0)

        def come_back() -> tuple[bytes, socket.socket]:
            peer = broker.connect(protocol="lightmq")
            broker.say(peer, board.codec.connect("kitchen"))
            return exactly(peer, len(accepted)), peer

        for _ in range(2):
            assert come_back()[0] == refused
        assert connection.on_hold  # it is still there, and it is let wait
        assert not connection.transport.is_closing()
        board.peer.shutdown(socket.SHUT_WR)
        assert come_back()[0] == refused
        said, peer = come_back()
        assert said == accepted
        assert broker.server.disconnected == {"hung up": 1}
        gates[0].open()
        broker.say(peer, board.codec.send(3, b"again"))
        until(peer, board.codec.sendresp(3, b""))
        status = b"lightmq/kitchen/status"
        told = [pack(4, status, body) for body in (b"online", b"offline", b"online")]
        assert exactly(watcher, sum(map(len, told))) == b"".join(told)
    kept = [body[:8] for body in bodies(tmp_path / "journal")]
    assert [body for body in kept if body[:2] in (b"re", b"no", b"ag")] == [
        b"read" + bytes(4),
        b"again",
    ]


def test_in_memory_nobody_waits(tmp_path: Path, gates: tuple[Gate, Gate]) -> None:
    with served(data=tmp_path, journal={"ack": "memory"}) as broker:
        board = Board(broker, "board")
        gates[0].close()
        broker.say(board.peer, board.codec.send(7, b"first"))
        response = board.codec.sendresp(7, b"")
        assert exactly(board.peer, len(response)) == response
        gates[0].open()


def test_what_is_staged_is_answered_while_segments_take_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there after a kill, and in a segment when those take something again."""
    gate = Gate()
    write_all = segment.write_all

    def write(file: int, buffers: list[bytes]) -> None:
        gate.pass_through()
        write_all(file, buffers)

    monkeypatch.setattr(segment, "write_all", write)
    (tmp_path / "data").mkdir()
    with served(data=tmp_path / "data", journal={"flush_s": 60.0}) as broker:
        board = Board(broker, "board")
        own = subscriber(broker, "t")
        retained = pack(4, b"t", b"kept")
        try:
            broker.say(board.peer, board.codec.send(7, b"first"))
            response = board.codec.sendresp(7, b"")
            assert exactly(board.peer, len(response)) == response
            broker.say(own, retained)
            assert exactly(own, len(retained)) == retained
            assert b"first" not in bodies(tmp_path / "data" / "journal")
            shutil.copytree(tmp_path / "data", tmp_path / "killed")
        finally:
            gate.open()
    assert b"first" in bodies(tmp_path / "data" / "journal")
    with served(data=tmp_path / "killed"):
        assert {b"first", b"kept"} <= set(bodies(tmp_path / "killed" / "journal"))
    store = MessageStore(tmp_path / "killed" / "retained.sqlite")
    assert (b"t", retained, b"") in store.entries()
    store.close()


def test_an_echo_waits_and_keeps_its_place(tmp_path: Path, gates: tuple[Gate, Gate]) -> None:
    with served(data=tmp_path, journal={"flush_s": 60.0}) as broker:
        own, other = subscriber(broker, "t"), subscriber(broker, "t")
        gates[0].close()
        one, two, three = (pack(0, b"t", word) for word in (b"one", b"two", b"three"))
        broker.say(own, one)
        assert exactly(other, len(one)) == one
        gates[0].wait_until_reached()
        broker.say(other, two)
        broker.say(broker.connect(), three)
        # Both have published: the one waits for its first, the other for its second.
        assert there(own) == b""
        assert there(other) == b""
        gates[0].open()
        for peer, heard in ((own, one + two + three), (other, two + three)):
            assert exactly(peer, len(heard)) == heard


def test_a_retained_message_is_kept_before_its_echo(
    tmp_path: Path, gates: tuple[Gate, Gate]
) -> None:
    retained = pack(4, b"t", b"kept")
    with served(data=tmp_path, journal={"flush_s": 60.0}) as broker:
        own = subscriber(broker, "t")
        broker.say(own, retained)
        assert exactly(own, len(retained)) == retained
        wal = (tmp_path / "retained.sqlite-wal").read_bytes()
        assert retained in wal


def test_who_has_ended_is_still_answered(tmp_path: Path, gates: tuple[Gate, Gate]) -> None:
    with served(data=tmp_path, journal={"flush_s": 60.0}) as broker:
        board = Board(broker, "board")
        gates[0].close()
        broker.say(board.peer, board.codec.send(7, b"last"))
        gates[0].wait_until_reached()
        board.peer.shutdown(socket.SHUT_WR)
        malformed = Board(broker, "other")
        broker.say(malformed.peer, malformed.codec.send(8, b"x") + b"\xff\x00\x00")
        assert there(board.peer) == b""
        gates[0].open()
        for ended, id in ((board, 7), (malformed, 8)):
            response = ended.codec.sendresp(id, b"")
            assert exactly(ended.peer, len(response)) == response
            assert ended.peer.recv(1) == b""


def test_a_name_is_free_when_who_has_it_is_closed_before_its_answers(
    tmp_path: Path, gates: tuple[Gate, Gate]
) -> None:
    """What was closed for a mistake is still answered, and its last will does not wait."""
    with served(data=tmp_path, journal={"flush_s": 60.0}) as broker:
        watcher = subscriber(broker, "lightmq/board/status")
        board = Board(broker, "board")
        online = pack(4, b"lightmq/board/status", b"online")
        assert exactly(watcher, len(online)) == online
        gates[0].close()
        broker.say(board.peer, board.codec.send(8, b"x") + b"\xff\x00\x00")
        offline = pack(4, b"lightmq/board/status", b"offline")
        assert exactly(watcher, len(offline)) == offline
        again = Board(broker, "board")  # it is accepted
        gates[0].open()
        response = board.codec.sendresp(8, b"")
        assert exactly(board.peer, len(response)) == response
        assert board.peer.recv(1) == b""
        broker.say(again.peer, again.codec.send(9, b"y"))
        assert until(again.peer, again.codec.sendresp(9, b""))


def test_after_those_who_wait_nobody_has_to(tmp_path: Path, gates: tuple[Gate, Gate]) -> None:
    """What nobody waits for is written after ``flush_s``, also if somebody was in a hurry before
    who had nothing to be written."""
    with served(data=tmp_path, journal={"flush_s": 0.01}) as broker:
        board, other = Board(broker, "board"), broker.connect()
        gates[0].close()
        broker.say(board.peer, board.codec.send(7, b"first"))
        gates[0].wait_until_reached()
        broker.say(board.peer, board.codec.ping(9))  # a turn in which an answer waits
        gates[0].open()
        response = board.codec.sendresp(7, b"") + board.codec.pong(9)
        assert exactly(board.peer, len(response)) == response
        gates[0].close()
        broker.say(other, pack(0, b"t", b"second"))
        gates[0].wait_until_reached()
        gates[0].open()


def test_what_waits_is_bounded(tmp_path: Path, gates: tuple[Gate, Gate]) -> None:
    """Those who publish to a connection whose answer waits are held when that is too much."""
    net = {"outbox_high_bytes": 100_000, "outbox_low_bytes": 20_000}
    with served(data=tmp_path, net=net, journal={"flush_s": 60.0}) as broker:
        own, flooding = subscriber(broker, "t"), broker.connect()
        gates[0].close()
        message = pack(0, b"t", bytes(10_000))
        broker.say(own, pack(0, b"t", b"mine"))
        gates[0].wait_until_reached()
        for _ in range(10):
            broker.say(flooding, message)
        connection, _ = broker.ours(flooding)
        assert broker.call(lambda: connection.on_hold)
        flooding.sendall(message)
        gates[0].open()
        expected = pack(0, b"t", b"mine") + 11 * message
        assert exactly(own, len(expected)) == expected


def test_a_stop_answers_first(tmp_path: Path, gates: tuple[Gate, Gate]) -> None:
    with served(data=tmp_path, journal={"flush_s": 60.0, "ack": "synced"}) as broker:
        board = Board(broker, "board")
        gates[1].close()
        broker.say(board.peer, board.codec.send(7, b"last"))
        gates[1].wait_until_reached()
        broker.begin_to_stop()
        gates[1].open()
        response = board.codec.sendresp(7, b"")
        assert exactly(board.peer, len(response)) == response
        assert board.peer.recv(1) == b""
