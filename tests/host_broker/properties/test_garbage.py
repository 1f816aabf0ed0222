"""Whatever one peer sends, nothing is raised and nobody else is harmed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Pong
from tests.host_broker.desk import Desk
from tests.host_broker.properties.traffic import CARRIED, CUTS, FMQP, LIGHTMQ, cut, mutated


@settings(max_examples=300)
@pytest.mark.parametrize("protocol", ["fmqp", "lightmq", "lightmq+fmqp"])
@given(data=st.data(), places=CUTS)
def test_garbage(protocol: str, data: st.DataObject, places: list[int]) -> None:
    traffic = st.one_of(mutated(FMQP), mutated(LIGHTMQ), mutated(CARRIED), st.binary(max_size=200))
    garbage = data.draw(traffic)
    desk = Desk()
    subscriber, publisher = desk.open(), desk.open()
    board = desk.lightmq("victim")
    desk.sub(subscriber, "quiet/corner")
    bad = desk.open(protocol)
    for read in cut(garbage, places):
        desk.send(bad, read)
        desk.advance(0.5)
    assert {close.connection for close in desk.closes} <= {bad}
    desk.close(bad)
    desk.got(subscriber)
    desk.got(board)
    desk.pub(publisher, "quiet/corner", b"still here")
    assert desk.messages(subscriber) == [(0, "quiet/corner", b"still here")]
    codec = Codec("client")
    desk.send(board, codec.ping(9))
    assert codec.receive_data(desk.got(board)) == [Pong(9)]
    desk.journal()  # every record decodes to its count
