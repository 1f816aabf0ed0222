# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``assembly.PythonAssembler``: the same methods with the same answers."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, getenv, realloc
from libc.string cimport memcpy

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from host_broker.net.journal.assembly import Assembled
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


cdef inline uint32_t big_endian(const uint8_t *at) noexcept nogil:
    return (
        (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16)
        | (<uint32_t> at[2] << 8) | <uint32_t> at[3]
    )


cdef void *grown(void *column, Py_ssize_t bytes_each, Py_ssize_t capacity) except NULL:
    cdef void *fresh = realloc(column, bytes_each * capacity)
    if fresh == NULL:
        raise MemoryError
    return fresh


cdef class _Open:
    """The columns of a block that is being filled."""

    cdef uint64_t *times
    cdef uint32_t *connections
    cdef uint32_t *counts
    cdef uint16_t *client_lengths
    cdef uint8_t *protocols
    cdef uint8_t *encodings
    cdef uint32_t *lengths
    cdef readonly Py_ssize_t records
    cdef Py_ssize_t record_capacity, messages, message_capacity
    cdef Py_ssize_t clients_length, body_bytes
    cdef uint64_t latest
    cdef list clients
    cdef list bodies
    cdef object mark
    cdef Py_ssize_t partition

    def __cinit__(self, Py_ssize_t partition):
        self.partition = partition
        self.clients = []
        self.bodies = []
        self.mark = ""

    def __dealloc__(self):
        free(self.times)
        free(self.connections)
        free(self.counts)
        free(self.client_lengths)
        free(self.protocols)
        free(self.encodings)
        free(self.lengths)

    cdef int room_for_record(self) except -1:
        cdef Py_ssize_t capacity
        if self.records < self.record_capacity:
            return 0
        capacity = 2 * self.record_capacity if self.record_capacity else 16
        self.times = <uint64_t *> grown(self.times, 8, capacity)
        self.connections = <uint32_t *> grown(self.connections, 4, capacity)
        self.counts = <uint32_t *> grown(self.counts, 4, capacity)
        self.client_lengths = <uint16_t *> grown(self.client_lengths, 2, capacity)
        self.protocols = <uint8_t *> grown(self.protocols, 1, capacity)
        self.encodings = <uint8_t *> grown(self.encodings, 1, capacity)
        self.record_capacity = capacity
        return 0

    cdef int room_for_messages(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t capacity = self.message_capacity if self.message_capacity else 16
        if self.messages + count <= self.message_capacity:
            return 0
        while capacity < self.messages + count:
            capacity *= 2
        self.lengths = <uint32_t *> grown(self.lengths, 4, capacity)
        self.message_capacity = capacity
        return 0

    cdef int add(self, uint64_t time_ns, object record, object body, Py_ssize_t size) except -1:
        cdef Py_ssize_t count = record.count
        cdef Py_ssize_t protocol = record.protocol
        cdef Py_ssize_t encoding = record.encoding
        cdef str client = record.client
        cdef Py_ssize_t at = self.records
        cdef bytes name = b""
        self.room_for_record()
        self.room_for_messages(count)
        # What may be refused comes first: a block has a record wholly or not at all.
        if count == 1:
            self.lengths[self.messages] = <uint32_t> size
        else:
            self.measure(body, size, count, encoding == WITH_PROPERTIES)
        if client:
            name = client.encode()
            if PyBytes_GET_SIZE(name) > LONGEST_CLIENT:
                raise ValueError("the name of a client is at most 65535 bytes long")
            if protocol == MARKED and is_mark(client):
                self.mark = client
            self.clients.append(name)
            self.clients_length += PyBytes_GET_SIZE(name)
        self.times[at] = time_ns
        self.connections[at] = record.connection
        self.counts[at] = <uint32_t> count
        self.protocols[at] = <uint8_t> protocol
        self.encodings[at] = <uint8_t> encoding
        self.client_lengths[at] = <uint16_t> PyBytes_GET_SIZE(name)
        if time_ns > self.latest:
            self.latest = time_ns
        self.bodies.append(body)
        self.body_bytes += size
        self.messages += count
        self.records += 1
        return 0

    cdef int measure(self, object body, Py_ssize_t size, Py_ssize_t count, bint properties) except -1:
        """Write the length of each publication of ``body`` down."""
        cdef Py_buffer view
        cdef const uint8_t *data
        cdef Py_ssize_t position = 0, number = 0, packet
        cdef uint32_t *lengths = self.lengths + self.messages
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

    cdef object take(self):
        cdef Py_ssize_t columns = COLUMN_BYTES * self.records + 4 * self.messages
        cdef Py_ssize_t length = columns + self.clients_length + self.body_bytes
        cdef bint joined = self.records > 1
        cdef bytes whole = PyBytes_FromStringAndSize(
            NULL, length if joined else length - self.body_bytes
        )
        cdef char *head = PyBytes_AS_STRING(whole)
        cdef Py_buffer view
        cdef bytes name
        memcpy(head, self.times, 8 * self.records)
        head += 8 * self.records
        memcpy(head, self.connections, 4 * self.records)
        head += 4 * self.records
        memcpy(head, self.counts, 4 * self.records)
        head += 4 * self.records
        memcpy(head, self.client_lengths, 2 * self.records)
        head += 2 * self.records
        memcpy(head, self.protocols, self.records)
        head += self.records
        memcpy(head, self.encodings, self.records)
        head += self.records
        memcpy(head, self.lengths, 4 * self.messages)
        head += 4 * self.messages
        for name in self.clients:
            memcpy(head, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            head += PyBytes_GET_SIZE(name)
        parts = [whole]
        if joined:
            for body in self.bodies:
                PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
                memcpy(head, view.buf, view.len)
                head += view.len
                PyBuffer_Release(&view)
        else:
            parts.append(self.bodies[0])
        return Assembled(
            self.partition, self.records, self.messages, self.latest, self.clients_length,
            length, parts, self.mark,
        )


cdef class Assembler:
    """Takes records as they come, and gives blocks; see the twin."""

    cdef Py_ssize_t partitions
    cdef Py_ssize_t most_bytes
    cdef dict filling
    cdef list closed
    cdef readonly Py_ssize_t messages

    def __init__(self, Py_ssize_t partitions, Py_ssize_t most_bytes):
        self.partitions = partitions
        self.most_bytes = most_bytes
        self.filling = {}
        self.closed = []

    def add(self, uint64_t time_ns, records not None):
        """Take the records of a read; see the twin."""
        cdef Py_ssize_t size, partition, before
        cdef _Open block
        for record in records:
            body = record.body
            size = len(body)
            partition = record.connection % self.partitions
            block = self.filling.get(partition)
            if block is not None and block.records and block.body_bytes + size > self.most_bytes:
                self.closed.append(block)
                block = None
            if block is None:
                block = self.filling[partition] = _Open(partition)
            before = block.messages
            block.add(time_ns, record, body, size)
            self.messages += block.messages - before

    def take(self, Py_ssize_t most_bytes):
        """Return the next blocks; see the twin."""
        cdef list found = []
        cdef Py_ssize_t size = 0
        cdef _Open block
        while size < most_bytes:
            if not self.closed:
                self.closed = [each for each in self.filling.values() if each.records]
                self.filling = {}
                if not self.closed:
                    break
            block = self.closed.pop(0)
            found.append(block.take())
            size += block.body_bytes
            self.messages -= block.messages
        return found
