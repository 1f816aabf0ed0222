"""Answers what protocols ask the edge (``Ask``): of sockets, of the journal, of the past."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Final

from host_broker.broker import Broker
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.tuning import round_trip_ms
from host_broker.net.history import Past
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.writer import Journal
from host_broker.net.statistics import statistics
from host_broker.net.storage.message_store import MessageStoreError
from host_broker.outputs import ConnectionId
from host_broker.questions import (
    AskHistory,
    AskJournal,
    AskStatistics,
    AskTraffic,
    History,
    NoAnswer,
    Question,
    Traffic,
)

LATER: Final = object()  # it has to be looked for
_SETTLE_S = 1.0  # a disk that takes longer is waited for no more
_LOOKING_AT_ONCE = 2  # into the past: others want the processor, too
_MOST_WAITING = 100  # to be looked for


class Answerer:
    """What the edge knows, for protocols."""

    def __init__(
        self,
        broker: Broker,
        connections: Mapping[ConnectionId, Connection],
        disconnected: Mapping[str, int],
        journal: Journal | None,
        past: Past,
        began: float,
    ) -> None:
        """``disconnected``: how many were, by reason. ``began``: when the broker started, by
        ``time.monotonic``."""
        self._broker = broker
        self._connections = connections
        self._disconnected = disconnected
        self._journal = journal
        self._past = past
        self._began = began
        self._looking = asyncio.Semaphore(_LOOKING_AT_ONCE)
        self._waiting = 0

    def at_once(self, question: Question) -> object:
        """Return the answer, ``LATER`` if it takes a look at files or at much memory."""
        match question:
            case AskTraffic():
                return {
                    each: _traffic(self._connections[each])
                    for each in question.connections
                    if each in self._connections
                }
            case AskStatistics():
                return {
                    **statistics(self._broker, self._journal, self._disconnected),
                    "at": time.time_ns() // 1_000_000,
                    "up_s": round(time.monotonic() - self._began, 3),
                }
            case AskJournal() if self._journal is None:
                return None
            case _:
                return LATER

    async def look(self, question: Question) -> object:
        """Return the answer to any other question."""
        if self._waiting >= _MOST_WAITING:
            return NoAnswer("others ask for the past; try again")
        self._waiting += 1
        try:
            async with self._looking:
                journal = self._journal
                if journal is not None:
                    await asyncio.sleep(0)  # the turn in which the last of it comes
                    with contextlib.suppress(TimeoutError, JournalError, MessageStoreError):
                        await journal.reach(journal.appended, _SETTLE_S, "written")
                if isinstance(question, AskHistory):
                    return await self._look_back(question)
                if isinstance(question, AskJournal) and journal is not None:
                    return await asyncio.to_thread(_journal_state, journal)
                return NoAnswer(f"{type(question).__name__} is not known here", later=False)
        except (JournalError, OSError) as error:
            return NoAnswer(f"the journal cannot be read: {error}")
        finally:
            self._waiting -= 1

    async def _look_back(self, question: AskHistory) -> History:
        look = self._past.looker(question)
        return await asyncio.to_thread(look)


def _traffic(connection: Connection) -> Traffic:
    sock = connection.transport.get_extra_info("socket")
    return Traffic(
        connection.waiting_bytes,
        None if sock is None else round_trip_ms(sock),
        connection.received_bytes,
        connection.sent_bytes,
    )


def _journal_state(journal: Journal) -> Mapping[str, object]:
    """Return what the journal holds, and how far consumer groups are behind."""
    partitions, segments = [], 0
    states = journal.reader.partitions()
    for state in states:
        count = len(journal.reader.indexes(state.partition))
        segments += count
        partitions.append(
            {
                "partition": state.partition,
                "first": state.first,
                "next": state.next,
                "segments": count,
                "bytes": state.size,
            }
        )
    groups = []
    for name, group in journal.groups.all().items():
        lag = sum(
            max(0, state.next - max(state.first, group.positions.get(state.partition, 0)))
            for state in states
        )
        groups.append({"group": name, "lag": lag, "said": group.said_ns // 1_000_000})
    return {
        "id": str(journal.reader.identity),
        "segments": segments,
        "bytes": sum(state.size for state in states),
        "partitions": partitions,
        "groups": groups,
    }
