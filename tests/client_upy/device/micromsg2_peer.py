"""The least that a MicroMsg2 server does: it agrees to what the client needs, and acknowledges."""

from checks import Memory, equal

from umotemq.micromsg2 import MicroMsg2Client

REPLY = b"\x01\0\0\x06server\0\0\0\0"


def ack(number):
    """Return the frame that acknowledges all up to ``number``."""
    return b"\x02\x01\x02" + number.to_bytes(2, "big")


def message(number, destination, payload, properties=b"", flags=0):
    """Return a message frame; with the flag 8 the payload's length has four bytes."""
    wide = 4 if flags & 8 else 1
    parts = [bytes([flags]), number.to_bytes(2, "big"), bytes([len(destination)]), destination]
    parts += [len(properties).to_bytes(2, "big"), properties]
    return b"".join(parts) + len(payload).to_bytes(wide, "big") + payload


def answers(stream, heard=None, reply=REPLY):
    """Return what ``stream.answer`` may be. ``reply``: what it says to the client's first word.

    ``heard`` gets what the client says, in order: ("send", number, destination, payload),
    ("command", text), ("ack", number), ("error", text), ("hello", its bytes).
    """
    state = [0, 0]  # which connection, and how many handshake messages it had

    def answer(data):
        if state[0] != stream.opened:
            state[:] = [stream.opened, 0]
        said = b""
        while data:
            if state[1] < 2 and data[0] == 1:
                size = 6 + data[3]
                size += 2 + int.from_bytes(data[size - 2 : size], "big")
                size += int.from_bytes(data[size - 2 : size], "big")
                state[1] += 1
                said += reply if state[1] == 1 else b""
                frame = ("hello", data[:size])
            else:
                frame, size = _frame(data)
            if frame[0] == "send":
                said += ack(frame[1])
            if heard is not None:
                heard.append(frame)
            data = data[size:]
        return said

    return answer


def _frame(data):
    # Return the first frame, and its size.
    kind = data[0] & 7
    at = 1
    if kind == 0:
        start = 4 + data[3]
        at = start + 2 + int.from_bytes(data[start : start + 2], "big")
    elif kind == 2:
        at = 2
    wide = 4 if data[0] & 8 else 1
    body = at + wide
    end = body + int.from_bytes(data[at:body], "big")
    equal(end <= len(data), True, "a frame in two writes: %r" % data)
    payload = bytes(data[body:end])
    if kind == 0:
        number = int.from_bytes(data[1:3], "big")
        return ("send", number, bytes(data[4:start]), payload), end
    if kind == 2:
        return ("ack", int.from_bytes(payload, "big")), end
    return ("command" if kind == 1 else "error", payload), end


def named(stream=None, kind=MicroMsg2Client, **options):
    """Return a client that is not connected yet, its stream, and what the far end hears."""
    stream = stream or Memory()
    heard = []
    stream.answer = answers(stream, heard)
    if "retry_ms" not in options:
        options["retry_ms"] = 20
    return kind(stream, name=b"n", **options), stream, heard


def connected(stream=None, kind=MicroMsg2Client, **options):
    """Return a client that is up, and does not come back; its stream; and what is heard from now
    on, which nobody answers any more."""
    client, stream, heard = named(stream, kind, retry_ms=0, **options)
    client.connect(timeout_ms=1000)
    stream.take()
    del heard[:]
    return client, stream, heard


def drained(client, stream):
    """Have the client take all that its stream has."""
    client.poll(0)
    while not stream.empty:
        client.poll(0)
    client.poll(0)
