# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``topic_table``: the same three loops with the same answers."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, getenv, realloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject

cdef extern from * nogil:
    """
    #ifndef MOTEMQ_SOURCE
    #define MOTEMQ_SOURCE ""
    #endif
    #if defined(__SIZEOF_INT128__)
    static inline uint64_t motemq_mix(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128) a * b;
        return (uint64_t) product ^ (uint64_t) (product >> 64);
    }
    #else
    static inline uint64_t motemq_mix(uint64_t a, uint64_t b) {
        uint64_t product = a * b;
        product ^= product >> 29;
        product *= b;
        return product ^ (product >> 32);
    }
    #endif
    """
    const char *MOTEMQ_SOURCE
    uint64_t motemq_mix(uint64_t a, uint64_t b)

SOURCE = MOTEMQ_SOURCE.decode()  # SHA-256 of what this was compiled from

cdef const char *pure = getenv("MOTEMQ_PURE_PYTHON")
if pure != NULL and pure[0] != 0 and pure != b"0":
    raise ImportError("MOTEMQ_PURE_PYTHON is set")

cdef enum:
    HEADER_LENGTH = 6
    MOST_TOPIC = 255
    FIRST_CAPACITY = 64  # a power of two, as every capacity is
    # Slots for each topic, at least: a look-up that meets another topic first is a branch that the
    # processor has foreseen wrongly. With 2 a publication cost 10 to 14 ns, as the seed of the
    # hashes and the number of topics would have it, with 8 it is 7 to 9.
    SPREAD = 8
    FIRST_ROOM = 256  # visits
    MOST_DATA = 0x7FFFFFFF  # bytes

# Nobody outside can choose topics that fall on each other: Python's hash seed is random.
cdef uint64_t SEED = (<uint64_t> <Py_ssize_t> hash(b"a topic")) | 1
cdef uint64_t FACTOR = (<uint64_t> <Py_ssize_t> hash(b"another topic")) | 1


cdef struct Slot:
    uint64_t hashed
    const uint8_t *text  # of the topic
    uint32_t length
    bint marked
    PyObject *topic  # NULL: free
    PyObject *value  # NULL: it has none


cdef struct Visit:  # of a publication by a scan
    uint32_t start
    uint32_t end
    uint32_t at  # the slot of its topic


cdef inline uint64_t eight_at(const uint8_t *text) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, text, 8)
    return word


cdef inline uint64_t four_at(const uint8_t *text) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, text, 4)
    return word


# Both read topics by words that overlap at the end: a length that the compiler does not know is a
# call of a library, which costs more than all the rest.


cdef inline uint64_t hash_of(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    cdef uint64_t state = SEED ^ <uint64_t> length
    cdef uint64_t first = 0, last = 0
    cdef const uint8_t *end = text + length
    if length >= 8:
        while end - text > 16:
            state = motemq_mix(eight_at(text) ^ FACTOR, eight_at(text + 8) ^ state)
            text += 16
        first = eight_at(text if length < 16 else end - 16)
        last = eight_at(end - 8)
    elif length >= 4:
        first = four_at(text)
        last = four_at(end - 4)
    elif length:
        first = (<uint64_t> text[0] << 16) | (<uint64_t> text[length >> 1] << 8) | text[length - 1]
    return motemq_mix(motemq_mix(first ^ FACTOR, last ^ state), SEED)


cdef inline bint equal(const uint8_t *one, const uint8_t *other, Py_ssize_t length) noexcept nogil:
    # In the same steps as the hash, so that the processor foresees how many there are.
    cdef Py_ssize_t left = length
    if length >= 8:
        while left > 16:
            if (eight_at(one) ^ eight_at(other)) | (eight_at(one + 8) ^ eight_at(other + 8)):
                return False
            one += 16
            other += 16
            left -= 16
        if length >= 16:
            one -= 16 - left
            other -= 16 - left
            left = 16
        return not (
            (eight_at(one) ^ eight_at(other))
            | (eight_at(one + left - 8) ^ eight_at(other + left - 8))
        )
    if length >= 4:
        left -= 4
        return four_at(one) == four_at(other) and four_at(one + left) == four_at(other + left)
    while left:
        left -= 1
        if one[left] != other[left]:
            return False
    return True


cdef inline uint32_t body_length_at(const uint8_t *packet) noexcept nogil:
    return (
        (<uint32_t> packet[2] << 24) | (<uint32_t> packet[3] << 16)
        | (<uint32_t> packet[4] << 8) | <uint32_t> packet[5]
    )


cdef inline bint kept(const Slot *slot, bint values, bint marks) noexcept:
    return (values and slot.value != NULL) or (marks and slot.marked)


cdef class TopicTable:
    """What is known of topics of at most 255 bytes: a value that is not None, a mark, or both."""

    cdef Slot *slots
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count  # of topics
    cdef Py_ssize_t values
    cdef Py_ssize_t marks
    # What the last scan looked up, so that ``split`` need not do it again: as long as ``scanned``
    # is what is to be split, and no topic has moved to another slot.
    cdef bytes scanned
    cdef Visit *visits
    cdef Py_ssize_t visited
    cdef Py_ssize_t room  # for visits

    def __cinit__(self):
        self.slots = <Slot *> calloc(FIRST_CAPACITY, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        self.capacity = FIRST_CAPACITY

    def __dealloc__(self):
        self.release(self.slots, self.capacity)
        free(self.visits)

    @classmethod
    def __class_getitem__(cls, item):
        return cls

    def __len__(self):
        return self.values

    def __contains__(self, bytes topic not None):
        cdef Slot *slot = self.find(topic)
        return slot != NULL and slot.value != NULL

    def get(self, bytes topic not None):
        """Return a topic's value, None if it has none."""
        cdef Slot *slot = self.find(topic)
        return None if slot == NULL or slot.value == NULL else <object> slot.value

    def put(self, bytes topic not None, value):
        """Set a topic's value."""
        cdef Slot *slot = self.entered(topic)
        cdef PyObject *old = slot.value
        Py_INCREF(value)
        slot.value = <PyObject *> value
        if old == NULL:
            self.values += 1
        else:
            Py_DECREF(<object> old)

    def discard(self, bytes topic not None):
        """Forget a topic's value, if it has one."""
        cdef Slot *slot = self.find(topic)
        cdef PyObject *old
        if slot == NULL or slot.value == NULL:
            return
        old = slot.value
        slot.value = NULL
        self.values -= 1
        if not slot.marked:
            self.remove(slot)
        Py_DECREF(<object> old)

    def clear(self):
        """Forget all values."""
        self.rebuild(FIRST_CAPACITY, False, True)

    @property
    def marked(self):
        """How many topics are marked."""
        return self.marks

    def is_marked(self, bytes topic not None):
        """Whether a topic is marked."""
        cdef Slot *slot = self.find(topic)
        return slot != NULL and slot.marked

    def mark(self, bytes topic not None):
        """Mark a topic."""
        cdef Slot *slot = self.entered(topic)
        self.marks += not slot.marked
        slot.marked = True

    def topics(self):
        """Return all that anything is known of, in no order."""
        cdef Py_ssize_t at
        cdef list found = []
        for at in range(self.capacity):
            if self.slots[at].topic != NULL:
                found.append(<object> self.slots[at].topic)
        return found

    def unmark_all(self):
        """Forget all marks."""
        self.rebuild(FIRST_CAPACITY, True, False)

    def scan(self, bytes data not None, Py_ssize_t position, Py_ssize_t max_body):
        """Skip the plain publications that begin at ``position``; see the twin."""
        cdef const uint8_t *begin = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t count = 0, body, length
        cdef const uint8_t *packet
        cdef Slot *slot
        cdef Visit *visit
        if position < 0:
            raise ValueError("a position is not negative")
        if size >= MOST_DATA:
            raise ValueError("a read is not that long")
        if data is not self.scanned or not self.visited or position < self.last_end():
            self.scanned = data
            self.visited = 0
        while size - position >= HEADER_LENGTH:
            packet = begin + position
            length = <Py_ssize_t> body_length_at(packet)
            body = HEADER_LENGTH + <Py_ssize_t> packet[1]
            if packet[0] or length == 0 or length > max_body:
                break
            if length > size - position - body:
                break
            slot = self.look_up(packet + HEADER_LENGTH, packet[1])
            if slot == NULL or not slot.marked:
                break
            if self.visited == self.room:
                self.make_room()
            visit = self.visits + self.visited
            visit.start = <uint32_t> position
            position += body + length
            visit.end = <uint32_t> position
            visit.at = <uint32_t> (slot - self.slots)
            self.visited += 1
            count += 1
        return position, count

    def split(self, bytes data not None, Py_ssize_t position, Py_ssize_t end):
        """Divide whole publications where the value of topics changes; see the twin."""
        cdef const uint8_t *begin = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *packet
        cdef PyObject *current = NULL
        cdef PyObject *value
        cdef Slot *slot
        cdef Py_ssize_t next_position, visit
        cdef list stretches = []
        if position < 0 or end > PyBytes_GET_SIZE(data):
            raise ValueError("the run is not within the data")
        visit = self.visit_at(position) if data is self.scanned else self.visited
        while position < end:
            if visit < self.visited and self.visits[visit].start == position:
                next_position = self.visits[visit].end
                value = self.slots[self.visits[visit].at].value
                visit += 1
            else:
                packet = begin + position
                if end - position < HEADER_LENGTH:
                    raise ValueError("the run does not end with a publication")
                next_position = position + HEADER_LENGTH + packet[1] + body_length_at(packet)
                if next_position > end:
                    raise ValueError("the run does not end with a publication")
                slot = self.look_up(packet + HEADER_LENGTH, packet[1])
                value = NULL if slot == NULL else slot.value
            if next_position > end:
                raise ValueError("the run does not end with a publication")
            if value == NULL:
                break
            if value != current:
                if current != NULL:
                    stretches.append((<object> current, position))
                current = value
            position = next_position
        if current != NULL:
            stretches.append((<object> current, position))
        return position, stretches

    cdef Py_ssize_t last_end(self) noexcept:
        return self.visits[self.visited - 1].end

    cdef Py_ssize_t visit_at(self, Py_ssize_t position) noexcept:
        """Return the first visit that begins at a position, or behind it."""
        cdef Py_ssize_t low = 0, high = self.visited, middle
        while low < high:
            middle = (low + high) >> 1
            if self.visits[middle].start < position:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int make_room(self) except -1:
        cdef Py_ssize_t room = 2 * self.room or FIRST_ROOM
        cdef Visit *visits = <Visit *> realloc(self.visits, room * sizeof(Visit))
        if visits == NULL:
            raise MemoryError
        self.visits = visits
        self.room = room
        return 0

    cdef Slot *look_up(self, const uint8_t *text, Py_ssize_t length) noexcept nogil:
        cdef uint64_t hashed = hash_of(text, length)
        cdef uint64_t mask = <uint64_t> (self.capacity - 1)
        cdef uint64_t at = hashed & mask
        cdef Slot *slot
        while True:
            slot = self.slots + at
            if slot.topic == NULL:
                return NULL
            if slot.hashed == hashed and slot.length == length and equal(slot.text, text, length):
                return slot
            at = (at + 1) & mask

    cdef Slot *find(self, bytes topic):
        return self.look_up(<const uint8_t *> PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))

    cdef Slot *entered(self, bytes topic) except NULL:
        """Return the slot of a topic, which is entered if it is not there."""
        cdef Slot *slot = self.find(topic)
        cdef Slot fresh
        if slot != NULL:
            return slot
        if PyBytes_GET_SIZE(topic) > MOST_TOPIC:
            raise ValueError("a topic is at most 255 bytes long")
        if SPREAD * (self.count + 1) > self.capacity:
            self.rebuild(2 * self.capacity, True, True)
        Py_INCREF(topic)
        fresh.text = <const uint8_t *> PyBytes_AS_STRING(topic)
        fresh.length = <uint32_t> PyBytes_GET_SIZE(topic)
        fresh.hashed = hash_of(fresh.text, fresh.length)
        fresh.topic = <PyObject *> topic
        fresh.value = NULL
        fresh.marked = False
        self.count += 1
        return self.insert(&fresh)

    cdef Slot *insert(self, const Slot *filled) noexcept:
        cdef uint64_t mask = <uint64_t> (self.capacity - 1)
        cdef uint64_t at = filled.hashed & mask
        while self.slots[at].topic != NULL:
            at = (at + 1) & mask
        self.slots[at] = filled[0]
        return self.slots + at

    cdef void remove(self, Slot *slot):
        cdef Py_ssize_t hole, at, home, mask = self.capacity - 1
        cdef PyObject *topic = slot.topic
        # What was put behind it because it was there moves up, so that searches end at a free slot.
        hole = slot - self.slots
        self.slots[hole].topic = self.slots[hole].value = NULL
        at = (hole + 1) & mask
        while self.slots[at].topic != NULL:
            home = <Py_ssize_t> (self.slots[at].hashed & <uint64_t> mask)
            if ((at - home) & mask) >= ((at - hole) & mask):
                self.slots[hole] = self.slots[at]
                self.slots[at].topic = self.slots[at].value = NULL
                hole = at
            at = (at + 1) & mask
        self.count -= 1
        self.visited = 0
        Py_DECREF(<object> topic)

    cdef int rebuild(self, Py_ssize_t capacity, bint values, bint marks) except -1:
        """Have new slots, so many or more, with the ``values``, the ``marks`` or both."""
        cdef Slot *old = self.slots
        cdef Py_ssize_t old_capacity = self.capacity, at, count = 0
        cdef Slot *fresh
        for at in range(old_capacity):
            if old[at].topic != NULL and kept(old + at, values, marks):
                count += 1
        while capacity < SPREAD * (count + 1):
            capacity *= 2
        fresh = <Slot *> calloc(capacity, sizeof(Slot))
        if fresh == NULL:
            raise MemoryError
        self.slots = fresh
        self.capacity = capacity
        self.count = count
        self.visited = 0
        if not values:
            self.values = 0
        if not marks:
            self.marks = 0
        for at in range(old_capacity):
            if old[at].topic != NULL and kept(old + at, values, marks):
                fresh = self.insert(old + at)
                if not marks:
                    fresh.marked = False
                if values:
                    old[at].value = NULL
                else:
                    fresh.value = NULL
                old[at].topic = NULL
        # Only now: what is told of its end may look into this table.
        self.release(old, old_capacity)
        return 0

    cdef void release(self, Slot *slots, Py_ssize_t capacity) noexcept:
        """Give back slots that hold what has no place any more."""
        cdef Py_ssize_t at
        if slots == NULL:
            return
        for at in range(capacity):
            if slots[at].topic != NULL:
                Py_DECREF(<object> slots[at].topic)
            if slots[at].value != NULL:
                Py_DECREF(<object> slots[at].value)
        free(slots)


def deal(
    bytes data not None,
    Py_ssize_t start,
    list stretches not None,
    dict groups not None,
    Py_ssize_t group_count,
    Py_ssize_t most,
):
    """Copy each stretch of ``data`` to all groups of its value, in order; see the twin."""
    cdef const char *begin = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t position, end, group, total = 0
    cdef Py_ssize_t *sizes = <Py_ssize_t *> calloc(group_count + 1, sizeof(Py_ssize_t))
    cdef char **heads = <char **> calloc(group_count + 1, sizeof(char *))
    cdef tuple stretch, members
    cdef list dealt = []
    cdef bytes copy
    try:
        if sizes == NULL or heads == NULL:
            raise MemoryError
        position = start
        for stretch in stretches:
            end = stretch[1]
            if not 0 <= position <= end <= size:
                raise ValueError("the stretches are not within the data")
            members = <tuple> groups[stretch[0]]
            for group in members:
                if not 0 <= group < group_count:
                    raise IndexError(group)
                sizes[group] += end - position
            total += (end - position) * len(members)
            if total > most:
                return None
            position = end
        for group in range(group_count):
            copy = PyBytes_FromStringAndSize(NULL, sizes[group])
            heads[group] = PyBytes_AS_STRING(copy)
            dealt.append(copy)
        position = start
        for stretch in stretches:
            end = stretch[1]
            members = <tuple> groups[stretch[0]]
            for group in members:
                memcpy(heads[group], begin + position, end - position)
                heads[group] += end - position
            position = end
        return dealt
    finally:
        free(sizes)
        free(heads)
