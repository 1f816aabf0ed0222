"""The call ``sync``: what is retained has been told to the subscriptions before it."""

import pytest

from host_broker.questions import AskTraffic
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.umq.peer import Heard, UmqPeer, joined, umq_desk, updates

_RETAINED = 2000
_BODY = b"x" * 400  # so that they do not go out at once


def _desk() -> tuple[Desk, UmqPeer]:
    desk = umq_desk()
    board = desk.open()
    for number in range(_RETAINED):
        desk.pub(board, f"kept/{number:04}", _BODY, cache=True)
    return desk, joined(desk)


def _edge_answers(desk: Desk) -> None:
    questions, desk.questions = desk.questions, []
    for number, question in questions:
        assert question == AskTraffic(())
        desk.broker.answered(number, {}, desk.now)
        desk.done()


@pytest.mark.parametrize("together", [True, False])
def test_the_answer_comes_behind_what_is_retained(together: bool) -> None:
    """Also where the client takes it piece by piece, and said both in one read."""
    desk, client = _desk()
    desk.slow.add(client.connection)
    said = ('C1:["subscribe","kept/*","A"]', 'C2:["sync"]')
    heard: list[Heard] = []
    if together:
        heard += client.say(*said)
    else:
        for each in said:
            heard += client.say(each)
    rounds = 0
    while "R2:{}" not in heard:
        rounds += 1
        assert rounds < _RETAINED
        desk.broker.proceed(client.connection, desk.now)
        desk.done()
        _edge_answers(desk)
        heard += client.heard()
    assert rounds > 2
    told = updates(heard[: heard.index("R2:{}")])
    assert [each["topic"] for each in told] == [f"kept/{n:04}" for n in range(_RETAINED)]


def test_with_nothing_retained() -> None:
    desk = umq_desk()
    client = joined(desk)
    client.say('C1:["sync"]')
    _edge_answers(desk)
    assert client.heard() == ["R1:{}"]
    (answer,) = client.say('C2:["sync",5]')
    assert str(answer).startswith("E2:3 ")


def test_a_client_that_goes_meanwhile() -> None:
    desk, client = _desk()
    desk.slow.add(client.connection)
    client.say('C1:["subscribe","kept/*","A"]', 'C2:["sync"]')
    desk.close(client.connection)
    _edge_answers(desk)
    assert "R2:{}" not in client.heard()
