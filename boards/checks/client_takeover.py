"""Two clients under one ClientID: the broker's policy holds, and presence tells the truth."""

import time

from boards.checks.connection_ends import MEASURES, end_line, expect_cause, prompt, watch
from boards.checks.declared import Check, Samples
from boards.checks.will_watcher import PING_MS, watch_will
from boards.session.board_session import BoardSession, CheckFailed
from boards.session.broker_process import PATIENT
from boards.session.plan import Need
from host_broker.client import Refused
from host_broker.client import connect as connect_client

_PROXY: frozenset[Need] = frozenset({"proxy"})


def will_takeover(board: BoardSession) -> list[Samples]:
    """A second client takes the ClientID over: the old connection is closed, presence stays."""
    own = board.own_broker()
    with (
        board.disturbed(own.facing["lightmq"]),
        watch_will(board, "will_takeover", own.addresses["fmqp"]) as watched,
    ):
        url = f"lightmq://{own.addresses['lightmq']}/{board.client_id}"
        with connect_client(url, timeout_s=10.0):
            ended = watched.ended("client")
            by_broker = bool(ended.broker_ended) and not ended.cut
            first = ended.client_ended_ns or ended.broker_ended_ns
            expect_cause(ended, by_broker and first >= ended.broker_ended_ns, "the broker closed")
            watched.saw(["online"])  # the newcomer's; nobody is said to be gone
            left_ns = time.monotonic_ns()
        # Now the one who has the name goes: that is its end.
        samples = prompt(watched, left_ns, None)
        board.hang_up()
        return samples


def will_reject(board: BoardSession) -> list[Samples]:
    """A second client under the same ClientID is refused: the board stays, and so its presence."""
    own = board.own_broker(PATIENT)
    url = f"lightmq://{own.addresses['lightmq']}/{board.client_id}"
    with (
        board.disturbed(own.facing["lightmq"]) as route,
        watch(board, "will_reject", PATIENT) as watched,
    ):
        try:
            with connect_client(url, timeout_s=10.0):
                raise CheckFailed(f"a second client was let in as {board.client_id}")
        except Refused:
            board.call("ping", count=3, timeout_ms=PING_MS)
        watched.saw([])
        trace = watched.trace()
        if trace.client_ended or trace.broker_ended:
            raise CheckFailed(f"the refused client cost the board its link: {trace.story()}")
        samples = end_line(watched, route, "rst")
        board.hang_up()
        with connect_client(url, timeout_s=10.0):  # the name is free now
            return samples


CHECKS = (
    Check("will_takeover", will_takeover, ("lightmq",), _PROXY, MEASURES, deadline_s=90.0),
    Check("will_reject", will_reject, ("lightmq",), _PROXY, MEASURES, deadline_s=90.0),
)
