"""What a program asks for and cannot have, in words. Imported when it does."""

from umotemq.link import LinkError

_WHY = {
    "ping": "a client without a name has no ping",
    "outage": "confirm needs an outage",
    "again": "confirm is not for what is sent on each link: will, again",
}


def refused(what):
    """Raise ValueError that says why."""
    raise ValueError(_WHY[what])


def no_room(start, size, room):
    """Raise ValueError if a message of ``size`` bytes is longer than the transmit buffer.

    If only what waits there takes the room, bytes up to ``start``, the LinkError "size".
    """
    if size > room:
        raise ValueError("%d bytes, tx_size %d" % (size, room))
    raise LinkError("size", "%d bytes, tx_size %d" % (start + size, room))
