"""The whole broker against FMQP as the text says it: twenty lines without tries or batches."""

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk, Message

_LEVEL = st.sampled_from(["a", "b", "*"])
_TOPIC = st.lists(_LEVEL, min_size=1, max_size=3).map("/".join)
_CLIENTS = 3
_ACTION = st.tuples(
    st.integers(0, _CLIENTS - 1),
    st.sampled_from([0x00, 0x00, 0x00, 0x04, 0x80, 0xC0, 0x90]),
    _TOPIC,
    st.sampled_from([b"1", b"2", b""]),
)


def _equivalent(one: str, other: str) -> bool:
    ones, others = one.split("/"), other.split("/")
    return len(ones) == len(others) and all(
        a == b or "*" in (a, b) for a, b in zip(ones, others, strict=True)
    )


class _Model:
    """R14 to R23, literally."""

    def __init__(self) -> None:
        self.subscribed: list[set[str]] = [set() for _ in range(_CLIENTS)]
        self.got: list[list[Message]] = [[] for _ in range(_CLIENTS)]
        self.cache = {"$/info/clients": _CLIENTS.to_bytes(8, "big")}  # R41, A15

    def act(self, client: int, flags: int, topic: str, body: bytes) -> list[Message]:
        """Returns what is owed from the cache, in no particular order."""
        if flags & 0xC0 == 0xC0:
            self.subscribed[client].discard(topic)
        elif flags & 0x80:
            self.subscribed[client].add(topic)
            return [
                (4, kept, body) for kept, body in self.cache.items() if _equivalent(kept, topic)
            ]
        else:
            if flags & 4:
                self.cache.pop(topic, None)
                if body:
                    self.cache[topic] = body
            for receiver, topics in enumerate(self.subscribed):
                if body and any(_equivalent(topic, wanted) for wanted in topics):
                    self.got[receiver].append((flags, topic, body))
        return []


@settings(max_examples=300)
@given(st.lists(_ACTION, max_size=25))
def test_the_broker_is_the_text(actions: list[tuple[int, int, str, bytes]]) -> None:
    desk, model = Desk(), _Model()
    connections = [desk.open() for _ in range(_CLIENTS)]
    for client, flags, topic, body in actions:
        owed = model.act(client, flags, topic, body)
        desk.send(connections[client], pack(flags, topic.encode(), body))
        for number, connection in enumerate(connections):
            got = desk.messages(connection)
            if number == client and flags & 0x80:
                assert sorted(got) == sorted(owed)
            else:
                assert got == model.got[number]
            model.got[number].clear()
