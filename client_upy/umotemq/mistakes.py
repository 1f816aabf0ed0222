"""What a program asks for and cannot have, in words. Imported when it does."""

from umotemq.link import LinkError

_WHY = {
    "again": "confirm is not for what is sent on each link: will, again",
    "client_id": "client_id of %d bytes, not 1 to 255",
    "data": "%d bytes of data, at most 65463",
    "flags": "flags by name, as retain=True",
    "name": "name %r: not up to 255 bytes of ASCII",
    "open": "%r is no transport, as Tcp(host, port) is",
    "outage": "confirm needs an outage",
    "rx_size": "rx_size %d, at least %d",
    "size": "size %d, at least %d",
    "window": "window of %d, not 1 to 32767",
}


def throw(what, *values):
    """Raise ValueError that says why; TypeError if it is no transport or no flag that was given.

    ``flags`` comes with what was given in their place: if nothing, ``...``, the mistake is
    ``confirm`` for what is sent on each link.
    """
    if what == "flags":
        if values[0] is ...:
            what = "again"
        values = ()
    raise (TypeError if what in ("open", "flags") else ValueError)(_WHY[what] % values)


def no_room(client, start, end):
    """Raise ValueError if a message of ``end - start`` bytes is longer than the transmit buffer.

    If only what waits there takes the room, bytes up to ``start``, the LinkError "size".
    """
    room = client.tx_size
    if end - start > room:
        raise ValueError("%d bytes, tx_size %d" % (end - start, room))
    raise LinkError("size", "%d bytes, tx_size %d" % (end, room))
