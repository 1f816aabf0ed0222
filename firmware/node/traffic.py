"""Payloads that prove what became of them: made, sent and judged on the board.

Patterned: byte i of a payload is ``(seed + 7 * i) & 255``, so every value occurs and any shift
shows. Numbered: CRC-32 of the rest, a number, both four bytes and big-endian, then the pattern with
seed 0. The host's side is boards/checks/payloads.py.
"""

import gc
import struct
from binascii import crc32
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms, ticks_us

_MOST = 256  # messages that are told one by one
_CONFIRM_MS = 10000
_ALL_MS = 40000  # without a word, while what was sent comes back to who has subscribed to it


def patterned(size, seed):
    """Return a payload of ``size`` bytes."""
    return bytes([(seed + 7 * i) & 255 for i in range(size)])


def send_sizes(connection, topic, sizes, seed=0, retain=False):
    """Publish one patterned payload of each size, seeds ascending; wait until all is processed.

    Return the sizes that the client refused.
    """
    refused = []
    for index, size in enumerate(sizes):
        payload = patterned(size, seed + index)
        try:
            if connection.is_fmqp:
                connection.client.publish(topic, payload, retain=retain)
            else:
                connection.client.post(payload, _CONFIRM_MS)
        except ValueError:  # too long for the client's buffer
            refused.append(size)
    connection.confirm()
    return refused


def send_numbered(connection, hearing, topic, size, count, first=0, looks=0, noise=None):
    """Publish ``count`` numbered payloads of ``size`` bytes (at least 8) as fast as they go.

    ``hearing``: who gets those that come back, if any do.
    ``looks``: look so often at the heap that is free after a collection. ``noise``: bytes that are
    put beside the reliable link on its line, after every fourth message.
    """
    payload = bytearray(8) + patterned(size - 8, 0)
    rest = memoryview(payload)[4:]
    client = connection.client
    heap = [0] * looks  # all of it now: a list that grows would be what is found
    every = max(count // looks, 1) if looks else count + 1
    start = ticks_us()
    for number in range(count):
        struct.pack_into(">I", payload, 4, first + number)
        struct.pack_into(">I", payload, 0, crc32(rest))
        connection.send(topic, payload)
        if noise and number % 4 == 0:
            client.transport._transport.uart.write(noise)
        if number % 8 == 0:
            client.poll(0)
        if number % every == every - 1 and number // every < looks:
            gc.collect()
            heap[number // every] = gc.mem_free()
    sent_us = ticks_diff(ticks_us(), start)
    while not _is_confirmed(connection, hearing):
        pass
    return {"us": ticks_diff(ticks_us(), start), "sent_us": sent_us, "heap": heap}


def _is_confirmed(connection, hearing):
    # What comes back comes before the answer: as long as it comes, a slow line is not a dead one.
    heard = hearing.count
    try:
        connection.confirm(_ALL_MS)
    except OSError:
        if not connection.client.up or hearing.count == heard:
            raise
        return False
    return True


def request(connection, sizes, timeout_ms, seed=0):
    """SEND one patterned payload of each size; tell how each was answered, and how long it took.

    Good is the payload backwards. An answer that is late is nobody's, least of all the next one's.
    """
    client = connection.client
    answers = []
    for index, size in enumerate(sizes):
        payload = patterned(size, seed + index)
        start = ticks_us()
        try:
            answer = client.send(payload, timeout_ms)
            how = "good" if answer == backwards(payload) else "wrong"
        except OSError:
            if not client.up:
                raise
            how = "late"
        answers.append((how, ticks_diff(ticks_us(), start)))
    return {"answers": answers}


def backwards(payload):
    """Return the bytes from the last to the first. MicroPython slices by steps of 1 only."""
    return bytes(reversed(payload))


class TakeTexts:
    """Each message as text."""

    def __init__(self):
        self.count = 0
        self.payloads = []

    def hear(self, topic, payload):
        self.count += 1
        if len(self.payloads) < _MOST:
            self.payloads.append(payload)

    def result(self):
        return {"payloads": [payload.decode() for payload in self.payloads]}


class TakeRequests:
    """Requests, each answered with its bytes backwards."""

    def __init__(self):
        self.count = 0

    def hear(self, topic, payload):
        self.count += 1
        return backwards(payload)

    def result(self):
        return {"count": self.count}


class TakeDigests:
    """Each message as topic, size and CRC-32."""

    def __init__(self):
        self.count = 0
        self.messages = []

    def hear(self, topic, payload):
        self.count += 1
        if len(self.messages) < _MOST:
            self.messages.append((topic.decode(), len(payload), crc32(payload)))

    def result(self):
        return {"messages": self.messages, "count": self.count}


class TakeNumbered:
    """What became of numbered payloads: which came twice, late, changed or never."""

    def __init__(self):
        self.count = self.next = self.doubled = self.late = self.corrupt = self.missing = 0
        self.first_us = self.last_us = 0

    def hear(self, topic, payload):
        self.last_us = ticks_us()
        if not self.count:
            self.first_us = self.last_us
        self.count += 1
        if len(payload) < 8 or struct.unpack_from(">I", payload)[0] != crc32(payload[4:]):
            self.corrupt += 1
            return
        number = struct.unpack_from(">I", payload, 4)[0]
        if number == self.next - 1:
            self.doubled += 1
        elif number < self.next:
            self.late += 1
        else:
            self.missing += number - self.next
            self.next = number + 1

    def result(self):
        return {
            "count": self.count,
            "next": self.next,
            "doubled": self.doubled,
            "late": self.late,
            "corrupt": self.corrupt,
            "missing": self.missing,
            "us": ticks_diff(self.last_us, self.first_us),
        }


def take(client, hearing, count, timeout_ms, quiet_ms=0, pause_ms=0):
    """Hear ``count`` messages, and what comes within ``quiet_ms`` after them.

    Gives up when none has come for ``timeout_ms``: who is slow has not lost them. Tells the host
    first that it may begin. ``pause_ms``: read nothing for so long.
    """
    print("AGENT-READY")
    discarded = client.discarded
    if pause_ms:
        sleep_ms(pause_ms)
    _poll_until(client, hearing, count, timeout_ms)
    if quiet_ms and hearing.count >= count:
        _poll_until(client, hearing, hearing.count + 1, quiet_ms)
    result = hearing.result()
    result["discarded"] = client.discarded - discarded
    return result


def _poll_until(client, hearing, count, timeout_ms):
    heard = -1
    while hearing.count < count:
        if hearing.count != heard:
            heard = hearing.count
            until = ticks_add(ticks_ms(), timeout_ms)
        left = ticks_diff(until, ticks_ms())
        if left <= 0:
            return
        client.poll(left)
