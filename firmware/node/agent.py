"""What the rig's checks drive, one step a call: ``agent.run(NAME, ARGS_JSON)``, see docs/node.md.

The connection stays open between steps. Each step prints one line, ``AGENT {json}``.
"""

import gc
import json
import sys
from time import ticks_diff, ticks_ms, ticks_us

import node

_WINDOW_MS = 10000  # for a response to each SEND

_connection = None
_hearing = None  # of traffic.py: who gets the messages, None while nobody waits for any


def run(name, args="{}"):
    """Do one step and print its result line, whatever happens. ``args``: a JSON object."""
    try:
        step = _STEPS.get(name)
        if step is None:
            raise ValueError("no step %r; there are: %s" % (name, ", ".join(sorted(_STEPS))))
        result = step(**json.loads(args))
        result["ok"] = True
    except Exception as error:  # the reader of the console gets one line, never a traceback
        result = {"ok": False, "error": "%s: %s" % (type(error).__name__, error)}
    print("AGENT " + json.dumps(result))


def _info():
    import umotemq

    gc.collect()
    version = sys.implementation.version
    return {
        "machine": getattr(sys.implementation, "_machine", sys.platform),
        "version": "%d.%d.%d" % (version[0], version[1], version[2]),
        "uid": _uid(),
        "heap_free": gc.mem_free() if hasattr(gc, "mem_free") else None,
        "client": umotemq.__version__,
    }


def _uid():
    try:
        from machine import unique_id
    except ImportError:
        return ""  # the stock unix port has none
    return "".join("%02x" % byte for byte in unique_id())


def _open():
    if _connection is None:
        raise ValueError("not connected: run the step connect first")
    return _connection


def _hear(*received):
    # FMQP calls with (topic, payload), LightMQ with (data): the last is the payload. What is
    # returned is LightMQ's response.
    if _hearing is not None:
        return _hearing.hear(received[0] if len(received) > 1 else b"", received[-1])


def _connect(client_id=None, will=None, timeout_ms=10000, options=None):
    global _connection
    _close()
    config = node.load()
    config.update(options or {})
    start = ticks_ms()
    connection = node.Connection(config, client_id or config["board"], timeout_ms, _hear)
    if will:
        if not connection.is_fmqp:
            connection.client.close()
            raise ValueError("LightMQ has no last will")
        connection.client.publish(will[0].encode(), will[1].encode(), will=True)
        connection.confirm()
    _connection = connection
    return {"ms": ticks_diff(ticks_ms(), start)}


def _publish(topic="", payload="", count=1, retain=False):
    connection = _open()
    client = connection.client
    responses = []
    rest = payload[2:] if payload.startswith("#n ") else None
    topic = topic.encode()
    if not connection.is_fmqp:
        client.on_response = responses.append
    start = ticks_us()
    for number in range(count):
        text = payload if rest is None or count == 1 else "#%d%s" % (number, rest)
        if connection.is_fmqp:
            client.publish(topic, text.encode(), retain=retain)
        else:
            client.post(text.encode(), _WINDOW_MS)
    if not connection.is_fmqp:
        client.flush(_WINDOW_MS)
    return {"sent": count, "responses": len(responses), "us": ticks_diff(ticks_us(), start)}


def _receive(topic="", count=1, timeout_ms=10000):
    import traffic

    with _Hearing(traffic.TakeTexts()) as hearing:
        _subscribe(topic)
        traffic.take(_open().client, hearing, count, timeout_ms)
    _unsubscribe(topic)
    return hearing.result()


def _subscribe(topic):
    connection = _open()
    if connection.is_fmqp:
        connection.client.subscribe(topic.encode(), _hear)
    connection.client.ping(_WINDOW_MS)  # the broker works in order: it is active now
    return {}


def _unsubscribe(topic):
    connection = _open()
    if connection.is_fmqp:
        connection.client.unsubscribe(topic.encode())
        connection.client.ping(_WINDOW_MS)
    return {}


def _take(kind="digests", topic="", count=1, timeout_ms=10000, quiet_ms=0, pause_ms=0):
    import traffic

    kinds = {
        "digests": traffic.TakeDigests,
        "numbered": traffic.TakeNumbered,
        "requests": traffic.TakeRequests,
    }
    with _Hearing(kinds[kind]()) as hearing:
        if topic:  # what is retained comes before the host may begin
            _subscribe(topic)
        return traffic.take(_open().client, hearing, count, timeout_ms, quiet_ms, pause_ms)


class _Hearing:
    # Who hears the messages while a block lasts.

    def __init__(self, hearing):
        self._hearing = hearing

    def __enter__(self):
        global _hearing
        _hearing = self._hearing
        return _hearing

    def __exit__(self, *_):
        global _hearing
        _hearing = None


def _send_sizes(topic="", sizes=(), seed=0, retain=False):
    import traffic

    with _Hearing(traffic.TakeDigests()) as hearing:
        refused = traffic.send_sizes(_open(), topic.encode(), sizes, seed, retain)
    result = hearing.result()
    result["refused"] = refused
    return result


def _send_numbered(topic="", size=32, count=1, first=0, looks=0, noise=()):
    import traffic

    with _Hearing(traffic.TakeNumbered()) as hearing:
        result = traffic.send_numbered(
            _open(), hearing, topic.encode(), size, count, first, looks, bytes(noise)
        )
    result["heard"] = hearing.result()
    return result


def _request(sizes=(), timeout_ms=5000, seed=0):
    import traffic

    return traffic.request(_open(), sizes, timeout_ms, seed)


def _ping(count=1, timeout_ms=5000):
    client = _open().client
    rtt_us = []
    lost = 0
    print("AGENT-READY")
    start = ticks_us()
    for _ in range(count):
        try:
            rtt_us.append(client.ping(timeout_ms))
        except OSError:
            if not client.up:
                raise
            lost += 1
    return {"rtt_us": rtt_us, "lost": lost, "us": ticks_diff(ticks_us(), start)}


def _live(ms, topic="", count=0, until_down=False):
    import line

    with _Hearing(line.Kept()) as kept:
        if topic:
            _subscribe(topic)
        return line.live(_open().client, kept, ms, count, until_down)


def _confirmed(client_id, topic, options=None, **rest):
    import confirmed

    _close()
    config = node.load()
    config.update(options or {})
    return confirmed.send(
        node.transport(config), config, client_id.encode(), topic.encode(), **rest
    )


def _echo(**options):
    import line

    _close()
    config = node.load()
    config.pop("tls", None)  # plain bytes: how fast is the line itself?
    stream = node.transport(config).open()
    try:
        return line.echo(stream, **options)
    finally:
        stream.close()


def _close():
    global _connection
    if _connection is not None:
        _connection.client.close()
        _connection = None
    return {}


_STEPS = {
    "info": _info,
    "connect": _connect,
    "publish": _publish,
    "receive": _receive,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "take": _take,
    "send_sizes": _send_sizes,
    "send_numbered": _send_numbered,
    "request": _request,
    "ping": _ping,
    "live": _live,
    "confirmed": _confirmed,
    "echo": _echo,
    "close": _close,
}
