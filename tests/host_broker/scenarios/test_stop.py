"""All connections end together: every will reaches everyone who wants it (FMQP R36, R37)."""

from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Send
from tests.host_broker.desk import Desk


def test_every_will_reaches_everyone_whoever_opened_first() -> None:
    """R28, R36, R37: boards and clients that opened before and after the one with the will."""
    desk = Desk()
    boards, watchers = [desk.lightmq("early")], [desk.open()]
    client = desk.open()
    boards.append(desk.lightmq("late"))
    watchers.append(desk.open())
    for watcher in watchers:
        desk.sub(watcher, "w")
        desk.sub(watcher, "lightmq/*/status")
        desk.pub(watcher, "w", b"will of %d" % watcher, will=True)
    desk.pub(client, "lightmq/*/down", b"stopping", will=True)
    for connection in (*boards, *watchers):
        desk.got(connection)
    desk.journal()
    desk.done(desk.broker.stop(desk.now))
    for board in boards:
        (send,) = Codec("client").receive_data(desk.got(board))
        assert isinstance(send, Send)
        assert send.data == b"stopping"
    wills = [(8, "w", b"will of %d" % watcher) for watcher in watchers]
    offline = [(4, f"lightmq/{name}/status", b"offline") for name in ("early", "late")]
    for watcher in watchers:
        assert sorted(desk.messages(watcher)) == sorted(wills + offline)
    published = [message for *_, found in desk.journal() for message in found]
    assert sorted(published) == sorted([*wills, *offline, (8, "lightmq/*/down", b"stopping")])


def test_no_will_fires_twice() -> None:
    """R25: the ends of the connections come after the stop."""
    desk = Desk()
    client, board = desk.open(), desk.lightmq("a")
    desk.pub(client, "w", b"bye", will=True)
    desk.done(desk.broker.stop(desk.now))
    desk.journal()
    for connection in (client, board):
        desk.close(connection)
    desk.advance(100)
    assert desk.journal() == []
    assert desk.closes == []
