"""What waits behind a slow receiver: dropped message by message, wherever reads were cut."""

from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from host_broker.net.connection.overflow import Dropped, Overflow

_RUNS = st.lists(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=8), max_size=12)
_TAKEN = st.lists(st.integers(0, 2), min_size=12, max_size=12)


class _Naive:
    """The same, of single messages."""

    def __init__(self, limit: int, oldest: bool) -> None:
        self._limit = limit
        self._oldest = oldest
        self.waiting: list[bytes] = []
        self.dropped: list[bytes] = []

    def put(self, messages: list[bytes]) -> None:
        for number, message in enumerate(messages):
            self.waiting.append(message)
            if self._oldest:
                while sum(map(len, self.waiting)) > self._limit:
                    self.dropped.append(self.waiting.pop(0))
            elif sum(map(len, self.waiting)) > self._limit:
                self.waiting.pop()
                self.dropped += messages[number:]
                return

    def get(self, data: bytes) -> None:
        while data:
            assert data.startswith(self.waiting[0])
            data = data[len(self.waiting.pop(0)) :]


@given(_RUNS, _TAKEN, st.integers(0, 400), st.booleans(), st.sampled_from(["fmqp", "lightmq"]))
def test_it_is_a_queue_of_messages(
    runs: list[list[bytes]], taken: list[int], limit: int, oldest: bool, protocol: str
) -> None:
    total = Dropped()
    overflow = Overflow(limit, total, verbatim=protocol == "fmqp", oldest=oldest)
    naive = _Naive(limit, oldest)
    for number, bodies in enumerate(runs):
        messages = [pack(0, b"t", body) for body in bodies]
        if protocol == "fmqp":
            overflow.put([b"".join(messages)])
            naive.put(messages)
        else:  # a buffer is a message there
            overflow.put([*messages])
            for message in messages:
                naive.put([message])
        for _ in range(taken[number]):
            if (buffer := overflow.get()) is not None:
                naive.get(bytes(buffer))
    while (buffer := overflow.get()) is not None:
        naive.get(bytes(buffer))
    assert naive.waiting == []
    assert not overflow
    assert overflow.dropped.messages == total.messages == len(naive.dropped)
    assert overflow.dropped.bytes == total.bytes == sum(map(len, naive.dropped))


def test_what_waits_keeps_no_long_read_in_memory() -> None:
    message = pack(0, b"t", bytes(1017))
    overflow = Overflow(256 * len(message), Dropped(), verbatim=True, oldest=True)
    overflow.put([message * 256])
    kept = []
    for _ in range(255):
        overflow.put([message])
    while (buffer := overflow.get()) is not None:
        exporter = buffer.obj if isinstance(buffer, memoryview) else buffer
        assert isinstance(exporter, bytes)
        kept.append((len(buffer), len(exporter)))
    assert sum(length for length, _ in kept) == 256 * len(message)
    assert all(memory <= 2 * length for length, memory in kept)
