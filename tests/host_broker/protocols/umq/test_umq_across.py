"""UMQ and every other protocol on one bus, both ways, with properties where there are any."""

from tests.host_broker.lightmq_peer import board as lightmq_board
from tests.host_broker.protocols.fq.peer import Peer as FqPeer
from tests.host_broker.protocols.micromsg2.peer import Peer as MicroMsg2Peer
from tests.host_broker.protocols.micromsg2.peer import told
from tests.host_broker.protocols.umq.peer import joined, umq_desk, updates


def test_a_board_of_lightmq_is_heard_and_told() -> None:
    """R25: what it SENDs, its presence, and what is for it."""
    desk = umq_desk()
    client = joined(desk)
    client.result("subscribe", "lightmq/*/*", "A")
    board = lightmq_board(desk, "kitchen")
    board.say(board.codec.send(1, b"21.5"))
    found = [(each["topic"], each["text"]) for each in updates(client.heard())]
    assert found == [("lightmq/kitchen/status", "online"), ("lightmq/kitchen/up", "21.5")]
    client.result("publish", "lightmq/kitchen/down", "beep")
    assert [send.data for send in board.sends()] == [b"beep"]
    desk.close(board.connection)
    (gone,) = updates(client.heard())
    assert (gone["topic"], gone["text"]) == ("lightmq/kitchen/status", "offline")


def test_properties_of_micromsg2_go_both_ways() -> None:
    desk = umq_desk()
    client, other = joined(desk), MicroMsg2Peer(desk)
    client.result("subscribe", "hall/*", "A")
    other.publish("topic/hall/lamp", b"on", "unit:C")
    (found,) = updates(client.heard())
    assert (found["topic"], found["text"]) == ("hall/lamp", "on")
    assert found["properties"]["unit"] == "C"
    other.subscribe("topic/hall/x")
    client.result("publish", "hall/x", "1", {"properties": {"unit": "F"}})
    ((_, destination, properties, payload),) = told(other.heard())
    assert (destination, payload) == ("topic/hall/x", b"1")
    assert properties == "unit:TF"


def test_exchanges_of_fq_are_first_levels() -> None:
    """Properties that are no text are not said."""
    desk = umq_desk()
    client, other = joined(desk), FqPeer(desk, b"q")
    client.result("subscribe", "hall/**", "A")
    other.publish(b"hall", b"temp.1", b"21", b"22")
    found = updates(client.heard())
    assert [(each["topic"], each["text"]) for each in found] == [
        ("hall/temp.1", "21"),
        ("hall/temp.1", "22"),
    ]
    assert {"fq.sender", "fq.id"} <= found[0]["properties"].keys()
    other.bind(b"hall", b"prefix:temp.")
    client.result("publish", "hall/temp.2", "23")
    assert other.payloads() == [b"23"]


def test_queues_are_seen() -> None:
    desk = umq_desk()
    client, other = joined(desk), MicroMsg2Peer(desk)
    other.publish("jobs", b"water the plants")
    (queue,) = client.result("queues")["queues"]
    assert queue == {
        "queue": "jobs",
        "policy": "block",
        "messages": 1,
        "waiting": 1,
        "bytes": queue["bytes"],
        "consumers": 0,
        "dropped": 0,
        "full": False,
        "durable": queue["durable"],
    }
    assert queue["bytes"] > 10


def test_queues_come_in_pages() -> None:
    """In the order of their names; one that is gone is in none."""
    desk = umq_desk()
    client, other = joined(desk), MicroMsg2Peer(desk)
    names = ["b", "a", "ž", "c", "bb"]
    clients = [FqPeer(desk, name.encode()) for name in names]
    other.publish("jobs", b"water the plants")
    found: list[str] = []
    page: dict[str, object] = {"limit": 2, "prefix": "fq/"}
    while page.get("after") != "":
        said = client.result("queues", page)
        found += [each["queue"] for each in said["queues"]]
        page["after"] = said.get("after", "")
        assert said["more"] == (page["after"] != "")
    assert found == [f"fq/{name}" for name in sorted(names)]
    both = client.result("queues", {"limit": 100})["queues"]
    assert [each["queue"] for each in both] == [*found, "jobs"]
    clients[1].close()
    (first,) = client.result("queues", {"limit": 1})["queues"]
    assert first["queue"] == "fq/b"


def test_wildcards_of_fmqp_publishers_reach_it() -> None:
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "hall/lamp", "A")
    desk.pub(board, "hall/*", b"all off")
    assert [each["text"] for each in updates(client.heard())] == ["all off"]
