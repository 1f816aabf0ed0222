"""What a program asks for and cannot have, in words. Imported when it does."""

from umotemq.link import LinkError

_WHY = {
    "again": "confirm is not for what is sent on each link: will, again",
    "client_id": "client_id of %d bytes, not 1 to 255",
    "data": "%d bytes of data, at most 65463",
    "flags": "flags by name, as retain=True",
    "handler": "%r is no handler",
    "name": "name %r: not up to 255 bytes of ASCII",
    "open": "%r is no transport, as Tcp(host, port) is",
    "outage": "confirm needs an outage",
    "rx_size": "rx_size %d, at least %d",
    "size": "size %d, at least %d",
    "tx_size": "%d bytes, tx_size %d",
    "window": "window of %d, not 1 to 32767",
}


def throw(what, *values):
    """Raise ValueError that says why; TypeError if it is not what such an argument has to be.

    ``flags`` comes with what was given in their place: if nothing, ``...``, the mistake is
    ``confirm`` for what is sent on each link. ``rx_size`` and ``tx_size`` come with the client; and
    ``tx_size`` with where a message would begin and end in the buffer: if only the bytes before it
    take the room, it is the LinkError "size".
    """
    if what == "flags":
        if values[0] is ...:
            what = "again"
        values = ()
    elif what == "rx_size":
        client, least = values
        values = client.rx_size, least
    elif what == "tx_size":
        client, start, end = values
        if end - start <= client.tx_size:
            raise LinkError("size", _WHY[what] % (end, client.tx_size))
        values = end - start, client.tx_size
    raise (TypeError if what in ("flags", "handler", "open") else ValueError)(_WHY[what] % values)
