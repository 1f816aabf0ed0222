"""Plain publications of many reads, until they are forwarded together.

With five hundred publishers of one frame each, making and running ``Outputs`` costs more than all
the rest; so what many reads of one turn of the event loop have for the same receivers is one piece
of work, as what one read has.
"""

from host_broker.bus.commands import PublishRun
from host_broker.bus.routes import Group
from host_broker.clients import Client
from host_broker.outputs import Buffer, Forward, Gathered, Record

_COPIED_BYTES = 1024  # a slice of less is copied: a view costs as much and keeps the read


def body_of(run: PublishRun) -> Buffer:
    """Return what a run publishes, without keeping a long read for the sake of a little of it."""
    data = run.data
    length = run.end - run.start
    if length == len(data):
        return data
    if length < _COPIED_BYTES or length < len(data) // 2:
        return data[run.start : run.end]
    return memoryview(data)[run.start : run.end]


class Gathering:
    """Takes runs in order, gives them as ``Gathered``. ``journalled``: with their records."""

    __slots__ = ("_forwards", "_group", "_journalled", "_last", "_records")

    def __init__(self, journalled: bool) -> None:
        self._journalled = journalled
        self._records: list[Record] = []
        self._forwards: list[Forward] = []
        self._last: Forward | None = None  # of self._forwards
        self._group: Group | None = None  # for whom that is

    def put(self, client: Client, count: int, body: Buffer, group: Group) -> None:
        """Take ``count`` plain publications for a group in which nobody needs a translation."""
        connection = client.connection
        if self._journalled:
            name = client.session.client
            self._records.append(Record(connection, client.journal_code, name, count, body))
        last = self._last
        if last is not None and group is self._group:
            last.buffers.append(body)
            last.senders.append(connection)
        elif group.verbatim:
            self._group = group
            last = self._last = Forward(group.verbatim, [body], [connection])
            self._forwards.append(last)

    def take(self) -> Gathered | None:
        """Return what was put since the last time; None if nothing is to be done."""
        records, forwards = self._records, self._forwards
        if not (records or forwards):
            return None
        self._records, self._forwards = [], []
        self._last = self._group = None
        return Gathered(records, forwards)
