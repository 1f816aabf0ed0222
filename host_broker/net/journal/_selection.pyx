# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``selection``: the same function with the same answers."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, getenv
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

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

cdef enum:
    HEADER = 48
    BEHIND_CRC = 12
    RECORD = 20  # bytes of the columns of a record
    SELECTED = 1


cdef inline uint16_t read16(const char *at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return value


cdef inline uint32_t read32(const char *at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


cdef inline uint64_t read64(const char *at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value


cdef inline void write32(char *at, uint32_t value) noexcept nogil:
    memcpy(at, &value, 4)


def select(bytes block not None, list stretches not None):
    """Return what follows the CRC of a selected block; see the twin."""
    cdef const char *data = PyBytes_AS_STRING(block)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(block)
    cdef Py_ssize_t records, messages, clients, bodies, position, end, record, number, of_record
    cdef Py_ssize_t kept_records = 0, kept_messages = 0, kept_clients = 0, kept_bytes = 0
    cdef Py_ssize_t at_stretch = 0, stretch_end = -1, name
    cdef bint wanted = False
    cdef uint32_t *kept = NULL
    cdef uint8_t *mask = NULL
    cdef uint64_t latest = 0, time_ns
    cdef const char *times
    cdef const char *counts
    cdef const char *client_lengths
    cdef const char *lengths
    cdef const char *names
    cdef char *head
    cdef char *columns
    cdef char *out_lengths
    cdef char *out_names
    cdef char *out_bodies
    cdef Py_ssize_t at
    cdef bytes found
    cdef tuple stretch
    if size < HEADER:
        raise ValueError("a block has 48 bytes at least")
    records, messages, clients = read32(data + 32), read32(data + 36), read32(data + 40)
    bodies = HEADER + RECORD * records + 4 * messages + clients
    if bodies > size:
        raise ValueError("the columns are longer than the block")
    times = data + HEADER
    counts = times + 12 * records
    client_lengths = times + 16 * records
    lengths = times + RECORD * records
    names = lengths + 4 * messages
    try:
        kept = <uint32_t *> calloc(records + 1, 4)
        mask = <uint8_t *> calloc(messages + 1, 1)
        if kept == NULL or mask == NULL:
            raise MemoryError
        position, number = bodies, 0
        name = 0
        for record in range(records):
            for of_record in range(read32(counts + 4 * record)):
                if number >= messages:
                    raise ValueError("a record has more messages than the block")
                while position >= stretch_end:
                    if at_stretch == len(stretches):
                        raise ValueError("the stretches end before the messages")
                    stretch = stretches[at_stretch]
                    wanted, stretch_end = stretch
                    at_stretch += 1
                end = position + read32(lengths + 4 * number)
                if end > size:
                    raise ValueError("a message is longer than the block")
                if wanted:
                    mask[number] = 1
                    kept[record] += 1
                    kept_bytes += end - position
                position = end
                number += 1
            name += read16(client_lengths + 2 * record)
            if name > clients:
                raise ValueError("a client name is longer than the block")
            if kept[record]:
                kept_records += 1
                kept_messages += kept[record]
                kept_clients += read16(client_lengths + 2 * record)
                time_ns = read64(times + 8 * record)
                if time_ns > latest:
                    latest = time_ns
        if not kept_messages:
            return None
        found = PyBytes_FromStringAndSize(
            NULL,
            HEADER - BEHIND_CRC + RECORD * kept_records + 8 * kept_messages + kept_clients + kept_bytes,
        )
        head = PyBytes_AS_STRING(found)
        memcpy(head, data + BEHIND_CRC, HEADER - BEHIND_CRC)
        head[0] = SELECTED
        head[1] = 0
        memcpy(head + 12, &latest, 8)
        write32(head + 20, <uint32_t> kept_records)
        write32(head + 24, <uint32_t> kept_messages)
        write32(head + 28, <uint32_t> kept_clients)
        columns = head + HEADER - BEHIND_CRC
        out_lengths = columns + RECORD * kept_records
        out_names = out_lengths + 8 * kept_messages
        out_bodies = out_names + kept_clients
        at = 0
        for record in range(records):
            name = read16(client_lengths + 2 * record)
            if kept[record]:
                memcpy(columns + 8 * at, times + 8 * record, 8)
                memcpy(columns + 8 * kept_records + 4 * at, times + 8 * records + 4 * record, 4)
                write32(columns + 12 * kept_records + 4 * at, kept[record])
                memcpy(columns + 16 * kept_records + 2 * at, client_lengths + 2 * record, 2)
                columns[18 * kept_records + at] = times[18 * records + record]
                columns[19 * kept_records + at] = times[19 * records + record]
                memcpy(out_names, names, name)
                out_names += name
                at += 1
            names += name
        position, at = bodies, 0
        for number in range(messages):
            end = position + read32(lengths + 4 * number)
            if mask[number]:
                write32(out_lengths + 4 * at, <uint32_t> (end - position))
                write32(out_lengths + 4 * (kept_messages + at), <uint32_t> number)
                memcpy(out_bodies, data + position, end - position)
                out_bodies += end - position
                at += 1
            position = end
        return found
    finally:
        free(kept)
        free(mask)
