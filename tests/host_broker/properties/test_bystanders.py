"""Mutated traffic of some, in both protocols: nothing is raised and no other client notices."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host_broker.desk import Desk
from tests.host_broker.properties.bystanders import Play
from tests.host_broker.properties.traffic import HARD_LIMIT, MAX_BODY

# The naive broker knows no other limits than those of bodies.
BUS_LIMITS = {"max_body": MAX_BODY}
LIMITS = {
    "hard_body_limit": HARD_LIMIT,
    "max_wills": 10_000,
    "signals": "off",
}


class _DeskStage:
    """The pure broker."""

    def __init__(self) -> None:
        self.desk = Desk(bus=dict(BUS_LIMITS), fmqp=dict(LIMITS))

    def open(self, protocol: str) -> int:
        return self.desk.open(protocol)

    def send(self, connection: int, data: bytes, done: bool) -> None:
        self.desk.send(connection, data)

    def close(self, connection: int) -> None:
        self.desk.close(connection)

    def got(self, connection: int, enough: Callable[[bytes], bool]) -> bytes:
        return self.desk.got(connection)


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_no_other_client_notices(seed: int) -> None:
    """R4, R14 to R30, R43 to R49: 400 plays of some twenty streams each."""
    stage = _DeskStage()
    assert Play(seed, stage, MAX_BODY, HARD_LIMIT).run(turns=12) > 5
    stage.desk.journal()  # every record decodes to its count
