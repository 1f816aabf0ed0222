# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``assembly.PythonAssembler``: the same methods with the same answers."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, getenv, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory

from host_broker.net.journal.assembly import LONG_BODY, Assembled
from host_broker.net.journal.checksum import crc32
from host_broker.net.journal.mark import PROTOCOL, is_mark

cdef extern from * nogil:
    """
    #ifndef MOTEMQ_SOURCE
    #define MOTEMQ_SOURCE ""
    #endif
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define MOTEMQ_LITTLE_ENDIAN 1
    #else
    #define MOTEMQ_LITTLE_ENDIAN 0
    #endif
    """
    const char *MOTEMQ_SOURCE
    int MOTEMQ_LITTLE_ENDIAN

SOURCE = MOTEMQ_SOURCE.decode()  # SHA-256 of what this was compiled from

cdef const char *pure = getenv("MOTEMQ_PURE_PYTHON")
if pure != NULL and pure[0] != 0 and pure != b"0":
    raise ImportError("MOTEMQ_PURE_PYTHON is set")
if not MOTEMQ_LITTLE_ENDIAN:
    raise ImportError("columns are little-endian, this machine is not")

cdef Py_ssize_t MARKED = PROTOCOL

cdef enum:
    HEADER_LENGTH = 6
    LENGTH_FIELD = 4
    WITH_PROPERTIES = 2
    LONGEST_CLIENT = 65535
    COLUMN_BYTES = 20  # of a record
    BLOCK_HEADER = 48
    BEHIND_CRC = 12  # of a block: what its CRC covers begins here
    FIRST_BODIES = 1024  # bytes

cdef Py_ssize_t LONG = LONG_BODY


cdef inline uint32_t big_endian(const uint8_t *at) noexcept nogil:
    return (
        (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16)
        | (<uint32_t> at[2] << 8) | <uint32_t> at[3]
    )


cdef char *append_body(object body, Py_ssize_t size, char *to) except NULL:
    """Copy the bytes of a body; returns where they end."""
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    memcpy(to, view.buf, size)
    PyBuffer_Release(&view)
    return to + size


cdef struct Place:  # in a block: how many of everything are before it
    Py_ssize_t records
    Py_ssize_t messages
    Py_ssize_t clients
    Py_ssize_t clients_length
    Py_ssize_t copied  # bytes of all but long bodies
    Py_ssize_t long_bodies
    Py_ssize_t body_bytes


cdef class _Open:
    """The columns of a block that is being filled.

    What is meant of it is what comes behind a place: ``staged``, or its begin.
    """

    cdef uint64_t *times
    cdef uint32_t *connections
    cdef uint32_t *counts
    cdef uint16_t *client_lengths
    cdef uint8_t *protocols
    cdef uint8_t *encodings
    cdef uint32_t *lengths
    cdef char *bodies  # all but long ones, back to back
    cdef Py_ssize_t record_capacity, message_capacity, body_capacity
    cdef Place end, staged
    cdef list long_bodies  # each with how many bytes of the others are before it
    cdef list clients
    cdef object mark
    cdef Py_ssize_t partition

    def __cinit__(self):
        self.clients = []
        self.long_bodies = []
        self.mark = ""

    def __dealloc__(self):
        free(self.times)
        free(self.lengths)
        free(self.bodies)

    cdef int room_for_record(self) except -1:
        """The columns of records are one piece of memory, which begins with the times."""
        cdef Py_ssize_t capacity
        cdef char *fresh
        cdef void *left = self.times
        if self.end.records < self.record_capacity:
            return 0
        capacity = 2 * self.record_capacity if self.record_capacity else 16
        fresh = <char *> malloc(COLUMN_BYTES * capacity)
        if fresh == NULL:
            raise MemoryError
        if left != NULL:
            self.record_columns(fresh, 0, capacity)
        self.times = <uint64_t *> fresh
        self.connections = <uint32_t *> (fresh + 8 * capacity)
        self.counts = <uint32_t *> (fresh + 12 * capacity)
        self.client_lengths = <uint16_t *> (fresh + 16 * capacity)
        self.protocols = <uint8_t *> (fresh + 18 * capacity)
        self.encodings = <uint8_t *> (fresh + 19 * capacity)
        self.record_capacity = capacity
        free(left)
        return 0

    cdef int room_for_messages(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t capacity = self.message_capacity if self.message_capacity else 16
        cdef void *fresh
        if self.end.messages + count <= self.message_capacity:
            return 0
        while capacity < self.end.messages + count:
            capacity *= 2
        fresh = realloc(self.lengths, 4 * capacity)
        if fresh == NULL:
            raise MemoryError
        self.lengths = <uint32_t *> fresh
        self.message_capacity = capacity
        return 0

    cdef int room_for_body(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t capacity = self.body_capacity if self.body_capacity else FIRST_BODIES
        cdef void *fresh
        if self.bodies != NULL and self.end.copied + size <= self.body_capacity:
            return 0
        while capacity < self.end.copied + size:
            capacity *= 2
        fresh = realloc(self.bodies, capacity)
        if fresh == NULL:
            raise MemoryError
        self.bodies = <char *> fresh
        self.body_capacity = capacity
        return 0

    cdef char *record_columns(self, char *to, Py_ssize_t first, Py_ssize_t room) noexcept:
        """Write down the columns of records from ``first`` on, each with ``room`` for so many;
        returns the end."""
        cdef Py_ssize_t count = self.end.records - first
        memcpy(to, self.times + first, 8 * count)
        to += 8 * room
        memcpy(to, self.connections + first, 4 * count)
        to += 4 * room
        memcpy(to, self.counts + first, 4 * count)
        to += 4 * room
        memcpy(to, self.client_lengths + first, 2 * count)
        to += 2 * room
        memcpy(to, self.protocols + first, count)
        to += room
        memcpy(to, self.encodings + first, count)
        return to + room

    cdef int add(self, uint64_t time_ns, object record, object body, Py_ssize_t size) except -1:
        cdef Py_ssize_t count = record.count
        cdef Py_ssize_t protocol = record.protocol
        cdef Py_ssize_t encoding = record.encoding
        cdef str client = record.client
        cdef Py_ssize_t at = self.end.records
        cdef bytes name = b""
        self.room_for_record()
        self.room_for_messages(count)
        # What may be refused comes first: a block has a record wholly or not at all.
        if size < LONG:
            self.room_for_body(size)
            append_body(body, size, self.bodies + self.end.copied)
        if count == 1:
            self.lengths[self.end.messages] = <uint32_t> size
        else:
            self.measure(body, size, count, encoding == WITH_PROPERTIES)
        if client:
            name = client.encode()
            if PyBytes_GET_SIZE(name) > LONGEST_CLIENT:
                raise ValueError("the name of a client is at most 65535 bytes long")
            if protocol == MARKED and is_mark(client):
                self.mark = client
            self.clients.append(name)
            self.end.clients += 1
            self.end.clients_length += PyBytes_GET_SIZE(name)
        self.times[at] = time_ns
        self.connections[at] = record.connection
        self.counts[at] = <uint32_t> count
        self.protocols[at] = <uint8_t> protocol
        self.encodings[at] = <uint8_t> encoding
        self.client_lengths[at] = <uint16_t> PyBytes_GET_SIZE(name)
        if size < LONG:
            self.end.copied += size
        else:
            self.long_bodies.append((self.end.copied, body))
            self.end.long_bodies += 1
        self.end.body_bytes += size
        self.end.messages += count
        self.end.records += 1
        return 0

    cdef int measure(self, object body, Py_ssize_t size, Py_ssize_t count, bint properties) except -1:
        """Write the length of each publication of ``body`` down."""
        cdef Py_buffer view
        cdef const uint8_t *data
        cdef Py_ssize_t position = 0, number = 0, packet
        cdef uint32_t *lengths = self.lengths + self.end.messages
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *> view.buf
            while number < count:
                packet = position
                if properties:
                    if size - packet < LENGTH_FIELD:
                        break
                    packet += LENGTH_FIELD + <Py_ssize_t> big_endian(data + packet)
                if size - packet < HEADER_LENGTH:
                    break
                packet += HEADER_LENGTH + data[packet + 1] + <Py_ssize_t> big_endian(data + packet + 2)
                lengths[number] = <uint32_t> (packet - position)
                number += 1
                position = packet
        finally:
            PyBuffer_Release(&view)
        if position != size or number != count:
            raise ValueError("a record is not as many whole publications as it says")
        return 0

    cdef char *columns(self, char *head, Place *since) noexcept:
        """Write down all that comes before the bodies; returns where they begin."""
        cdef Py_ssize_t messages = self.end.messages - since.messages
        cdef Py_ssize_t at
        cdef bytes name
        head = self.record_columns(head, since.records, self.end.records - since.records)
        memcpy(head, self.lengths + since.messages, 4 * messages)
        head += 4 * messages
        for at in range(since.clients, self.end.clients):
            name = self.clients[at]
            memcpy(head, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            head += PyBytes_GET_SIZE(name)
        return head

    cdef int copy_bodies(self, char *to, Place *since) except -1:
        """Write down all bodies, in order."""
        cdef Py_ssize_t begun = since.copied, number, at
        for number in range(since.long_bodies, self.end.long_bodies):
            at, body = self.long_bodies[number]
            memcpy(to, self.bodies + begun, at - begun)
            to = append_body(body, len(body), to + at - begun)
            begun = at
        memcpy(to, self.bodies + begun, self.end.copied - begun)
        return 0

    cdef Py_ssize_t columns_length(self, Place *since) noexcept:
        return (
            COLUMN_BYTES * (self.end.records - since.records)
            + 4 * (self.end.messages - since.messages)
            + self.end.clients_length - since.clients_length
        )

    cdef uint64_t latest(self, Place *since) noexcept:
        cdef uint64_t found = 0
        cdef Py_ssize_t number
        for number in range(since.records, self.end.records):
            if self.times[number] > found:
                found = self.times[number]
        return found

    cdef object take(self):
        """A long body is a part as it is; what is before it, or between two, is another one."""
        cdef Place begin
        cdef Py_ssize_t columns
        cdef Py_ssize_t begun = 0, at
        cdef list parts = []
        cdef bytes joined
        cdef char *to
        memset(&begin, 0, sizeof(begin))
        columns = self.columns_length(&begin)
        for at, body in [*self.long_bodies, (self.end.copied, None)]:
            if at > begun or not parts:
                joined = PyBytes_FromStringAndSize(NULL, at - begun + (0 if parts else columns))
                to = PyBytes_AS_STRING(joined)
                if not parts:
                    to = self.columns(to, &begin)
                memcpy(to, self.bodies + begun, at - begun)
                parts.append(joined)
            if body is not None:
                parts.append(body)
            begun = at
        return Assembled(
            self.partition, self.end.records, self.end.messages, self.latest(&begin),
            self.end.clients_length, columns + self.end.body_bytes, parts, self.mark,
        )

    cdef int append_unstaged(self, list parts, list numbers, uint32_t mark) except -1:
        """Append the block of what is not staged, header and all, to ``parts``, and move its
        partition's number on; nothing if all is staged."""
        cdef Place *since = &self.staged
        cdef uint32_t records = <uint32_t> (self.end.records - since.records)
        cdef uint32_t messages = <uint32_t> (self.end.messages - since.messages)
        cdef uint32_t clients_length = <uint32_t> (self.end.clients_length - since.clients_length)
        cdef Py_ssize_t columns = self.columns_length(since)
        cdef Py_ssize_t body_bytes = self.end.body_bytes - since.body_bytes
        cdef bint joined = records > 1 or self.end.long_bodies == since.long_bodies
        cdef Py_ssize_t size = BLOCK_HEADER + columns + (body_bytes if joined else 0)
        cdef uint32_t length = <uint32_t> (BLOCK_HEADER + columns + body_bytes)
        cdef uint32_t segment = mark + <uint32_t> self.partition
        cdef uint64_t latest = self.latest(since)
        cdef uint64_t first
        cdef uint32_t crc
        cdef bytes whole
        cdef char *head
        cdef char *bodies
        if not records:
            return 0
        first = numbers[self.partition]
        whole = PyBytes_FromStringAndSize(NULL, size)
        head = PyBytes_AS_STRING(whole)
        bodies = self.columns(head + BLOCK_HEADER, since)
        memcpy(head, b"MBLK", 4)
        memcpy(head + 4, &length, 4)
        memset(head + 12, 0, 4)  # flags, and 0
        memcpy(head + 16, &first, 8)
        memcpy(head + 24, &latest, 8)
        memcpy(head + 32, &records, 4)
        memcpy(head + 36, &messages, 4)
        memcpy(head + 40, &clients_length, 4)
        memcpy(head + 44, &segment, 4)
        if joined:
            self.copy_bodies(bodies, since)
        crc = crc32(PyMemoryView_FromMemory(head + BEHIND_CRC, size - BEHIND_CRC, PyBUF_READ))
        parts.append(whole)
        if not joined:
            _, body = self.long_bodies[since.long_bodies]
            crc = crc32(body, crc)
            parts.append(body)
        memcpy(head + 8, &crc, 4)
        numbers[self.partition] = first + messages
        return 0


cdef class Assembler:
    """Takes records as they come, and gives blocks; see the twin."""

    cdef Py_ssize_t partitions
    cdef Py_ssize_t most_bytes
    cdef dict filling
    cdef list closed
    cdef readonly Py_ssize_t messages

    def __cinit__(self):
        self.filling = {}
        self.closed = []

    def __init__(self, Py_ssize_t partitions, Py_ssize_t most_bytes):
        self.partitions = partitions
        self.most_bytes = most_bytes

    def add(self, uint64_t time_ns, records not None):
        """Take the records of a read; see the twin."""
        cdef Py_ssize_t size, partition, before
        cdef _Open block
        for record in records:
            body = record.body
            size = len(body)
            partition = record.connection % self.partitions
            block = self.filling.get(partition)
            if block is not None and block.end.records and block.end.body_bytes + size > self.most_bytes:
                self.closed.append(block)
                block = None
            if block is None:
                block = _Open.__new__(_Open)
                block.partition = partition
                self.filling[partition] = block
            before = block.end.messages
            block.add(time_ns, record, body, size)
            self.messages += block.end.messages - before

    def take(self, Py_ssize_t most_bytes):
        """Return the next blocks; see the twin."""
        cdef list found = []
        cdef Py_ssize_t size = 0
        cdef _Open block
        while size < most_bytes:
            if not self.closed:
                self.closed = [each for each in self.filling.values() if (<_Open> each).end.records]
                self.filling = {}
                if not self.closed:
                    break
            block = self.closed.pop(0)
            found.append(block.take())
            size += block.end.body_bytes
            self.messages -= block.end.messages
        return found

    def unstaged(self, list numbers not None, uint32_t mark):
        """Return whole blocks of what is not staged; see the twin."""
        cdef list parts = []
        cdef _Open block
        for block in self.closed:
            block.append_unstaged(parts, numbers, mark)
        for block in self.filling.values():
            block.append_unstaged(parts, numbers, mark)
        return parts

    def staged(self):
        """All that was added until now is staged; see the twin."""
        cdef _Open block
        for block in self.closed:
            block.staged = block.end
        for block in self.filling.values():
            block.staged = block.end
