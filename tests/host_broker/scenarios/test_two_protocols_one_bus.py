"""FMQP and LightMQ meet on the bus, both ways; presence; what the journal gets."""

import pytest

from host_broker.bus.publication import pack
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Send
from host_broker.protocols.lightmq.paths import level, path
from tests.host_broker.desk import Desk

_CODEC = Codec("client")


def _sends(desk: Desk, connection: int) -> list[bytes]:
    events = Codec("client").receive_data(desk.got(connection))
    return [event.data for event in events if isinstance(event, Send)]


def test_a_send_is_published_under_up() -> None:
    """A9."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/up")
    board = desk.lightmq("vpico-2")
    desk.send(board, _CODEC.send(1, b"one") + _CODEC.send(2, b"two"))
    assert desk.messages(watcher) == [
        (0, "lightmq/vpico-2/up", b"one"),
        (0, "lightmq/vpico-2/up", b"two"),
    ]


def test_what_is_published_under_down_is_sent() -> None:
    """A9: to that client, in order, from batches, single packets, wildcards and the cache."""
    desk = Desk()
    publisher = desk.open()
    desk.pub(publisher, "lightmq/a/down", b"kept", cache=True)
    a, b = desk.lightmq("a"), desk.lightmq("b")
    assert _sends(desk, a) == [b"kept"]
    desk.send(publisher, b"".join(pack(0, b"lightmq/a/down", b"%d" % n) for n in range(3)))
    desk.pub(publisher, "lightmq/*/down", b"all")
    desk.pub(publisher, "lightmq/b/down", b"cached", cache=True)
    assert _sends(desk, a) == [b"0", b"1", b"2", b"all"]
    assert _sends(desk, b) == [b"all", b"cached"]


def test_one_board_talks_to_another_through_an_fmqp_will() -> None:
    """FMQP R25 to LightMQ."""
    desk = Desk()
    board, client = desk.lightmq("a"), desk.open()
    desk.pub(client, "lightmq/a/down", b"I am gone", will=True)
    assert _sends(desk, board) == []
    desk.close(client)
    assert _sends(desk, board) == [b"I am gone"]


def test_presence_is_retained() -> None:
    """The broker's own last will for a protocol that has none."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/status")
    board = desk.lightmq("a")
    late = desk.open()
    desk.sub(late, "lightmq/a/status")
    desk.close(board)
    online, offline = [(4, "lightmq/a/status", word) for word in (b"online", b"offline")]
    assert desk.messages(watcher) == [online, offline]
    assert desk.messages(late) == [online, offline]
    later = desk.open()
    desk.sub(later, "*/*/*", debug=True)
    assert offline in desk.messages(later)


@pytest.mark.parametrize("ending", ["closed", "violation", "timeout"])
def test_every_ending_is_offline_once(ending: str) -> None:
    desk = Desk()
    watcher = desk.open()
    board = desk.lightmq("a")
    desk.sub(watcher, "lightmq/a/status")
    desk.messages(watcher)
    if ending == "violation":
        desk.send(board, b"\xff\x00\x00")
    elif ending == "timeout":
        desk.advance(60)
    assert len(desk.closes) == (ending != "closed")
    desk.close(board)
    desk.close(board)
    assert desk.messages(watcher) == [(4, "lightmq/a/status", b"offline")]


def test_whoever_never_connected_has_no_presence() -> None:
    desk = Desk()
    board = desk.open("lightmq")
    desk.close(board)
    assert desk.journal() == []


def test_a_connected_board_is_interest_in_its_down_path() -> None:
    """FMQP R45: publishers learn whether somebody is there."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/down", feedback=True)
    board = desk.lightmq("a")
    desk.close(board)
    bodies = [(1).to_bytes(8, "big"), b""]
    assert desk.messages(watcher) == [(0x24, "lightmq/a/down", body) for body in bodies]


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [
        ("vpico-1", b"vpico-1"),
        ("*", b"%2A"),
        ("a*", b"a*"),
        ("a/b", b"a%2Fb"),
        ("a%2Fb", b"a%252Fb"),
        ("\0", b"%00"),
        ("$", b"$"),
        ("düne", "düne".encode()),
        ("x" * 200, b"x" * 200),
    ],
)
def test_a_client_id_is_one_literal_level(client_id: str, expected: bytes) -> None:
    assert level(client_id) == expected


def test_the_longest_client_ids_have_their_own_paths() -> None:
    """LightMQ R2 allows 255 bytes, FMQP R6 a topic of 255."""
    names = ["é" * 127 + "a", "é" * 127 + "b", "/" * 255, "c" * 201]
    paths = {path(level(name), "status") for name in names}
    assert len(paths) == len(names)
    for topic in paths:
        topic.decode()
        assert len(topic) <= 255 - 40
        assert topic.count(b"/") == 2
    desk = Desk()
    boards = [desk.lightmq(name) for name in names]
    assert desk.closes == []
    publisher = desk.open()
    desk.pub(publisher, path(level(names[1]), "down").decode(), b"x")
    assert [_sends(desk, board) for board in boards] == [[], [b"x"], [], []]


def test_no_client_id_listens_to_another() -> None:
    """A ClientID ``*`` is no wildcard."""
    desk = Desk()
    star, publisher = desk.lightmq("*"), desk.open()
    desk.pub(publisher, "lightmq/a/down", b"secret")
    assert _sends(desk, star) == []


def test_what_the_journal_gets() -> None:
    """docs/journal.md: accepted publications and fired wills under their connection, LightMQ SENDs
    under their path, presence as the broker's; no service topic, feedback, or empty message."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a", feedback=True)
    desk.sub(client, "a")
    desk.pub(client, "w", b"will", will=True, cache=True)
    desk.pub(client, "$/x", b"service")
    desk.pub(client, "a", b"")
    assert desk.journal() == []
    desk.send(
        client,
        pack(0, b"/a/", b"1") + pack(4, b"b", b"2") + pack(0x80, b"x", b"") + pack(0, b"a", b"3"),
    )
    messages = [(0, "a", b"1"), (4, "b", b"2"), (0, "a", b"3")]
    assert desk.journal() == [(client, 1, "", messages)]
    board = desk.lightmq("ö")
    desk.send(board, _CODEC.send(1, b"up") + _CODEC.send(2, b""))
    assert desk.journal() == [
        (0, 0, "", [(4, "lightmq/ö/status", b"online")]),
        (board, 2, "ö", [(0, "lightmq/ö/up", b"up")]),
    ]
    desk.close(client)
    assert desk.journal() == [(client, 1, "", [(12, "w", b"will")])]
    desk.close(board)
    assert desk.journal() == [(0, 0, "", [(4, "lightmq/ö/status", b"offline")])]
    assert desk.broker.stats.publications == 5


def test_a_long_run_is_several_records() -> None:
    """docs/journal.md: a record is at most 16 MiB, whatever the wills of one client weigh."""
    desk = Desk(fmqp={"max_wills": 40})
    client = desk.open()
    for _ in range(40):
        desk.pub(client, "a", bytes(1024 * 1024), will=True)
    records = desk.close(client).records
    assert sum(record.count for record in records) == 40
    assert max(len(record.body) for record in records) < 16 * 1024 * 1024
