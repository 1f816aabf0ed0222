# cython: language_level=3, binding=False, boundscheck=False, wraparound=False
"""Reads that need no thought, from socket to socket without the interpreter.

It waits as ``epoll`` does. If then one socket alone has something to read, and that is plain
publications (docs/journal.md: flags 0, a body) of topics whose receivers were learned, and are the
same, it is sent to them, and it waits on. Whatever is different in any way is handed over as it was
found.
"""

from libc.errno cimport EINTR, errno
from libc.math cimport ceil
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t send(int fd, const void *buffer, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_wait(int epoll, epoll_event *events, int most, int timeout_ms)
    unsigned int EPOLLIN

cdef extern from * nogil:
    """
    #ifndef MOTEMQ_SOURCE
    #define MOTEMQ_SOURCE ""
    #endif
    """
    const char *MOTEMQ_SOURCE

cdef enum:
    MOST_EVENTS = 256
    MOST_RECEIVERS = 16
    MOST_ROUTES = 1024  # a power of two; a topic takes the place of another of the same hash
    MOST_PASSED = 64  # senders, until their counts are taken
    READ_BYTES = 16 * 1024
    HEADER_BYTES = 6
    MOST_TOPIC = 255

SOURCE = MOTEMQ_SOURCE.decode()  # SHA-256 of what this was compiled from


cdef struct Route:
    unsigned long generation  # it is none, unless this is the table's
    int topic_length
    unsigned char topic[MOST_TOPIC]
    int count
    int fds[MOST_RECEIVERS]


cdef struct Sender:
    bint ready  # between two packets
    long count  # of publications passed, and their bytes, since they were taken
    long long size


cdef unsigned int hashed(const unsigned char *topic, int length) noexcept nogil:
    """FNV-1a."""
    cdef unsigned int value = 2166136261
    cdef int at
    for at in range(length):
        value = (value ^ topic[at]) * 16777619
    return value


cdef class Lanes:
    """What is known of senders and topics, for one epoll.

    ``max_body``: bytes; a longer body is handed over. After ``wait``: ``data`` is what was read from
    the only socket that it returned, None if nothing was; ``stuck`` are the files of receivers that
    ``data`` could not be sent to, the first of which took ``sent`` bytes of it. Its publications
    count as passed.
    """

    cdef int epoll
    cdef long max_body
    cdef epoll_event events[MOST_EVENTS]
    cdef unsigned char buffer[READ_BYTES]
    cdef Route *routes
    cdef unsigned long generation
    cdef Sender *senders  # by file number
    cdef int capacity
    cdef int touched[MOST_PASSED]
    cdef int touched_count
    cdef readonly bytes data
    cdef readonly list stuck
    cdef readonly long sent

    def __cinit__(self, int epoll, long max_body):
        self.epoll = epoll
        self.max_body = max_body
        self.generation = 1
        self.stuck = []
        self.routes = <Route *> calloc(MOST_ROUTES, sizeof(Route))
        if self.routes == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.routes)
        free(self.senders)

    def learn(self, int fd, bytes data, list receivers):
        """Remember that ``fd`` stands between two packets, and who gets the topic of ``data``.

        ``data``: one whole plain publication. With too many receivers it is not remembered.
        """
        cdef const unsigned char *begin = <const unsigned char *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef int at
        cdef Route *route
        if fd < 0 or size <= HEADER_BYTES or size < HEADER_BYTES + begin[1]:
            raise ValueError("no file, or no publication")
        if len(receivers) > MOST_RECEIVERS:
            return
        if fd >= self.capacity:
            self.grow(fd)
        route = &self.routes[hashed(begin + HEADER_BYTES, begin[1]) & (MOST_ROUTES - 1)]
        route.generation = 0
        for at in range(len(receivers)):
            route.fds[at] = receivers[at]
        route.count = <int> len(receivers)
        route.topic_length = begin[1]
        memcpy(route.topic, begin + HEADER_BYTES, begin[1])
        route.generation = self.generation
        self.senders[fd].ready = True

    def stray(self, int fd):
        """Somebody else reads ``fd``, or nobody does: hand over what comes until it is learned."""
        if 0 <= fd < self.capacity:
            self.senders[fd].ready = False

    def forget(self):
        """Forget who gets what."""
        self.generation += 1

    def passed(self):
        """Return (file, publications, bytes) of what was passed on since the last time."""
        cdef int at, fd
        cdef list found = []
        for at in range(self.touched_count):
            fd = self.touched[at]
            found.append((fd, self.senders[fd].count, self.senders[fd].size))
            self.senders[fd].count = 0
            self.senders[fd].size = 0
        self.touched_count = 0
        return found

    def wait(self, timeout):
        """Wait at most ``timeout`` seconds, None for ever; returns (file, events) of who is ready.

        What can be passed on meanwhile is. Raises ``OSError``.
        """
        cdef double end = -1.0 if timeout is None else monotonic() + <double> timeout
        cdef int found, at
        cdef long size
        self.data = None
        if self.stuck:
            self.stuck = []
        with nogil:
            found = self.run(end, &size)
        if found < 0:
            if errno == EINTR:
                return []
            raise OSError(errno, "epoll_wait failed")
        if size >= 0:
            self.data = PyBytes_FromStringAndSize(<char *> self.buffer, size)
        return [(self.events[at].data.fd, self.events[at].events) for at in range(found)]

    cdef int grow(self, int fd) except -1:
        cdef int wanted = 2 * fd + 64
        cdef Sender *senders = <Sender *> realloc(self.senders, wanted * sizeof(Sender))
        if senders == NULL:
            raise MemoryError
        memset(&senders[self.capacity], 0, (wanted - self.capacity) * sizeof(Sender))
        self.senders = senders
        self.capacity = wanted
        return 0

    cdef int run(self, double end, long *size) noexcept nogil:
        """Wait and pass on until there is something else to do; returns how many events that is.

        ``size``: of what was read from the only one of them; -1 if nothing was.
        """
        cdef int found, fd, at, timeout_ms
        cdef double left
        cdef long count
        cdef ssize_t sent
        cdef Sender *sender
        cdef Route *route
        while True:
            size[0] = -1
            timeout_ms = -1
            if end >= 0:
                left = end - monotonic()
                timeout_ms = <int> ceil(min(left, 1e6) * 1e3) if left > 0 else 0
            found = epoll_wait(self.epoll, self.events, MOST_EVENTS, timeout_ms)
            if found != 1 or self.events[0].events != EPOLLIN:
                return found
            fd = self.events[0].data.fd
            if fd >= self.capacity or not self.senders[fd].ready:
                return found
            sender = &self.senders[fd]
            size[0] = recv(fd, self.buffer, READ_BYTES, MSG_DONTWAIT)
            route = self.route(size[0], &count)
            if route == NULL:
                sender.ready = False
                return found
            if not sender.count:
                self.touched[self.touched_count] = fd
                self.touched_count += 1
            sender.count += count
            sender.size += size[0]
            for at in range(route.count):
                sent = send(route.fds[at], self.buffer, size[0], MSG_DONTWAIT | MSG_NOSIGNAL)
                if sent != size[0]:
                    with gil:
                        self.stuck = [route.fds[each] for each in range(at, route.count)]
                        self.sent = max(sent, 0)
                    return found
            if self.touched_count == MOST_PASSED or (end >= 0 and monotonic() >= end):
                size[0] = -1
                return 0

    cdef Route *route(self, long size, long *count) noexcept nogil:
        """Return who gets what was read, and count its publications.

        NULL if it is anything but whole plain publications of known topics with the same receivers.
        """
        cdef const unsigned char *packet
        cdef long position = 0
        cdef long body
        cdef Route *route
        cdef Route *found = NULL
        count[0] = 0
        if size == READ_BYTES:  # there is more: longer reads are worth a turn
            return NULL
        while position < size:
            packet = self.buffer + position
            if size - position <= HEADER_BYTES or packet[0]:
                return NULL
            body = (
                (<long> packet[2] << 24)
                | (<long> packet[3] << 16)
                | (<long> packet[4] << 8)
                | <long> packet[5]
            )
            position += HEADER_BYTES + packet[1] + body
            if not body or body > self.max_body or position > size:
                return NULL
            route = &self.routes[hashed(packet + HEADER_BYTES, packet[1]) & (MOST_ROUTES - 1)]
            if (
                route.generation != self.generation
                or route.topic_length != packet[1]
                or memcmp(route.topic, packet + HEADER_BYTES, packet[1])
            ):
                return NULL
            if found != NULL and found != route and (
                found.count != route.count
                or memcmp(found.fds, route.fds, route.count * sizeof(int))
            ):
                return NULL
            found = route
            count[0] += 1
        return found


cdef double monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
