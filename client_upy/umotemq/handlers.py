"""Who gets an FMQP message that has come. fmqp imports it for whoever subscribes."""

from micropython import const

_SUBSCRIPTION = const(0x80)
_FEEDBACK = const(0x20)


def dispatcher(handler, raw):
    """Return ``dispatch``, for one handler more; ``raw``: it gets places in the buffer."""
    if not callable(handler):
        raise TypeError("handler")
    if raw:
        # Now, and not when messages begin to repeat, where nothing is to take heap.
        import umotemq.alike  # noqa: F401
    return dispatch


def dispatch(client, start, first, stop, body, end):
    """Call every handler of one message; return how many there were.

    Each of them gets it, whatever the others do. The message is in the client's buffer from
    ``start`` to ``end``, its topic without outer slashes from ``first`` to ``stop``.
    """
    topic = client._buf
    view = client._view
    if topic[start] & _SUBSCRIPTION:
        return 0  # no message at all
    wanted = _SUBSCRIPTION | topic[start] & _FEEDBACK
    count = 0
    failure = payload = only_raw = None
    for flags, pattern, _, handler, raw, levels in client._standing:
        if flags & (_SUBSCRIPTION | _FEEDBACK) != wanted:
            continue
        if len(pattern) != stop - first or not topic.startswith(pattern, first):
            if not levels and topic.find(b"*", first, stop) < 0:
                continue
            from umotemq.topic import is_like

            # What equals a valid topic is valid; others are looked through, if copied.
            if not is_like(levels or pattern, topic, first, stop, raw):
                continue
        if not raw and payload is None:
            payload = bytes(view[body:end])
            topic = bytes(view[first:stop])
            stop -= first
            first = 0
        count += 1
        only_raw = raw and handler
        try:
            if raw:
                handler(view, first, stop, body, end)
            else:
                handler(topic, payload)
        except Exception as error:
            failure = failure or error
    # Twice the same length, nobody subscribed meanwhile, and no slashes around the topic.
    if only_raw and count == 1 and not client._alike and end - body == client._size:
        if stop - first == topic[start + 1]:
            from umotemq.alike import Alike

            client._alike = Alike(client, start, body, end, only_raw)
    if failure:
        raise failure
    return count
