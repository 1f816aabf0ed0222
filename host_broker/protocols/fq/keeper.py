"""Permanent queues and bindings, in tables that others may change, too (``configuration``)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from host_broker.bus.commands import ChangeTables, Command, Complain
from host_broker.protocols.fq.codec import PEER_FLAG, PERMANENT
from host_broker.protocols.fq.configuration import (
    BindingRow,
    Configuration,
    QueueRow,
    Upstream,
    forget_binding,
    forget_queue,
    in_order,
    keep_binding,
    keep_queue,
    read_tables,
)
from host_broker.protocols.fq.queues import (
    Binding,
    FqQueue,
    Keeper,
    QueueError,
    Queues,
    WantedQueue,
    wanted_queue,
)
from host_broker.tables import Rows

MAX_COMPLAINT = 1000  # characters of a line of the log
NO_COMMANDS: Sequence[Command] = ()


class TableKeeper(Keeper):
    """Knows which rows there are: those that were told, and those that it has written since.

    As in fqd, a binding lasts only if its queue does, and a queue lasts as long as a permanent
    binding of it does, whatever its clients say (the file's foreign key).
    ``upstreams_changed`` is called with all rows of upstream when they are others than before.
    """

    def __init__(
        self,
        queues: Queues,
        upstreams_changed: Callable[[frozenset[Upstream]], Sequence[Command]] = lambda rows: (),
    ) -> None:
        self._queues = queues
        self._upstreams_changed = upstreams_changed
        self._queue_rows: dict[bytes, QueueRow] = {}
        self._binding_rows: set[BindingRow] = set()
        self._upstreams: frozenset[Upstream] = frozenset()
        self._has_begun = False
        self._said: set[str] = set()  # what is wrong with rows that are there still

    # ---- what clients do ----

    def queue_changed(self, queue: FqQueue) -> Sequence[Command]:
        """Have a queue last that is permanent, and any other not."""
        row = row_of(queue)
        if queue.permanent:
            if self._queue_rows.get(queue.name) == row:
                return NO_COMMANDS
            self._queue_rows[queue.name] = row
            return [ChangeTables([keep_queue(row)])]
        if queue.name not in self._queue_rows or any(
            each.queue == queue.name for each in self._binding_rows
        ):
            return NO_COMMANDS
        del self._queue_rows[queue.name]
        return [ChangeTables([forget_queue(queue.name)])]

    def binding_changed(self, binding: Binding, flags: int) -> Sequence[Command]:
        """Have a binding last that is permanent, and any other not."""
        if not binding.permanent:
            return self.binding_ended(binding)
        row = _binding_row(binding)
        if row in self._binding_rows or row.queue not in self._queue_rows:
            return NO_COMMANDS
        self._binding_rows.add(row)
        return [ChangeTables([keep_binding(row)])]

    def binding_ended(self, binding: Binding) -> Sequence[Command]:
        """Have it last no longer."""
        row = _binding_row(binding)
        if row not in self._binding_rows:
            return NO_COMMANDS
        self._binding_rows.discard(row)
        return [ChangeTables([forget_binding(row)])]

    # ---- what others have done ----

    def rows(self, found: Mapping[str, Rows]) -> Iterator[Command]:
        """Do what the rows say: open, bind, unbind, close; what cannot be is complained of once."""
        wanted = read_tables(found)
        before, self._said = self._said, set()
        queues_before, bindings_before = self._queue_rows, self._binding_rows
        self._queue_rows = dict(wanted.queues)
        self._binding_rows = set(wanted.bindings)
        for complaint in wanted.complaints:
            yield from self._complain(complaint, before)
        yield from self._unbind(bindings_before - self._binding_rows)
        yield from self._end(queues_before.keys() - wanted.queues.keys())
        for row in wanted.queues.values():
            yield from self._open(row, before)
        yield from self._queues.end_lost()
        if not self._has_begun:
            self._has_begun = True
            yield from self._name_those_left()
        yield from self._bind(wanted, before)
        if wanted.upstreams != self._upstreams:
            self._upstreams = wanted.upstreams
            yield from self._upstreams_changed(wanted.upstreams)

    def _complain(self, text: str, before: set[str]) -> Sequence[Command]:
        """Say what is wrong with a row, unless that was said ``before``; its cells may be long."""
        if len(text) > MAX_COMPLAINT:
            text = f"{text[:MAX_COMPLAINT]}… ({len(text)} characters)"
        self._said.add(text)
        return NO_COMMANDS if text in before else [Complain(text)]

    def _name_those_left(self) -> Iterator[Command]:
        for queue in self._queues.left():
            name = queue.name.decode(errors="backslashreplace")
            yield Complain(
                f"fq: the queue {name} on disk, with {len(queue)} messages, was not permanent when "
                "the broker was killed; it waits for a client that logs in to it, and ends with it"
            )

    def _unbind(self, rows: Iterable[BindingRow]) -> Iterator[Command]:
        for row in in_order(rows):
            binding = self._binding_of(row)
            if binding is not None and binding.permanent and binding.peer == row.peer:
                yield from self._queues.end(binding)

    def _end(self, names: Iterable[bytes]) -> Iterator[Command]:
        """Have those queues end that nobody uses; others end with their last client."""
        for name in sorted(names):
            queue = self._queues.by_name.get(name)
            if queue is not None and queue.permanent:
                queue.permanent = False
                if not queue.clients:
                    yield from self._queues.delete(queue)

    def _open(self, row: QueueRow, before: set[str]) -> Iterator[Command]:
        queue = self._queues.by_name.get(row.name)
        words = [word for word in row.attributes.decode(errors="replace").split(",") if word]
        complaint = f"fq.sqlite: the queue {row.name!r} cannot be had: "

        def opened(queue: FqQueue) -> Sequence[Command]:
            return NO_COMMANDS

        def refused(text: str) -> Sequence[Command]:
            return self._complain(f"{complaint}{text.strip()}", before)

        try:
            wanted = wanted_queue(row.name, row.type.decode(errors="replace"), words)
            if queue is not None and queue.permanent:
                yield from self._compare(queue, wanted, before)
                return
            if queue is None:
                queue, commands = self._queues.open(wanted, opened, refused)
                yield from commands
        except QueueError as error:
            yield from self._complain(f"{complaint}{str(error).strip()}", before)
        else:
            queue.permanent = True

    def _compare(self, queue: FqQueue, wanted: WantedQueue, before: set[str]) -> Sequence[Command]:
        """Say so if the row of a queue that is there has become another one."""
        is_ = (queue.kind, queue.private, queue.policy, queue.backlog)
        if is_ == (wanted.kind, wanted.private, wanted.policy, wanted.backlog):
            return NO_COMMANDS
        said = row_of(queue)
        return self._complain(
            f"fq.sqlite: the queue {queue.name!r} stays {said.type.decode()}:"
            f"{said.attributes.decode()} while the broker runs; what its row says now counts from "
            "the next start",
            before,
        )

    def _bind(self, wanted: Configuration, before: set[str]) -> Iterator[Command]:
        for row in in_order(wanted.bindings):
            binding = self._binding_of(row)
            if binding is not None:
                binding.permanent = True
                continue
            queue = self._queues.by_name.get(row.queue)
            if queue is None:
                continue  # it could not be had, which was said
            flags = PERMANENT | (PEER_FLAG if row.peer else 0)
            complaint = f"fq.sqlite: the program {row.program!r} of {row.exchange!r}, for "
            complaint += f"{row.queue!r}, is none, or there are too many"

            def answered(binding: Binding | None, said: str = complaint) -> Sequence[Command]:
                return NO_COMMANDS if binding is not None else self._complain(said, before)

            yield from self._queues.bind(queue, row.exchange, row.program, flags, answered)

    def _binding_of(self, row: BindingRow) -> Binding | None:
        queue = self._queues.by_name.get(row.queue)
        return None if queue is None else queue.by_program.get((row.exchange, row.program))


def row_of(queue: FqQueue) -> QueueRow:
    """Return a queue as fqd writes it."""
    visibility = "private" if queue.private else "public"
    attributes = f"{visibility},{queue.policy},backlog={queue.said_backlog}"
    return QueueRow(queue.name, queue.kind.encode(), attributes.encode())


def _binding_row(binding: Binding) -> BindingRow:
    return BindingRow(binding.exchange, binding.queue.name, binding.program.text, peer=binding.peer)
