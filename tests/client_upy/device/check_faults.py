"""The clients against a misbehaving server, and then with a good one.

Arguments: a file, JSON ({"faults": {name: port}, "good": {protocol: port}, "ca": a file beside
it}); what they are reached through (tcp, tls, uart); which part of the matrix, as 0/3, 1/3 or 2/3;
the protocols, as fmqp+lightmq, for a small heap does not hold them all; the driver (sync, aio).
"""

import gc
import json
import sys

if "micromsg2" in sys.argv:
    # First: to compile it takes more in one piece than a small heap has once it is in use.
    import umotemq.micromsg2  # noqa: F401
from checks import check, equal, now, run, since
from drivers import Changeable, Driver, to_end
from line_uart import LineMachine

from umotemq.link import LinkError
from umotemq.tcp import Tcp

with open(sys.argv[1]) as _file:
    _GIVEN = json.load(_file)
_FOLDER = sys.argv[1].rsplit("/", 1)[0] + "/"
_THROUGH = sys.argv[2]
_IS_UART = _THROUGH == "uart"
_PART, _PARTS = [int(number) for number in sys.argv[3].split("/")]
_GRACE = 1000  # ms after the configured time, without waiting for a processor
# A bridge's silence is 400 ms: a keepalive comes sooner, the silence before a session lasts longer.
_QUIET = 500 if _IS_UART else 0
_TIMEOUT = 300 + _QUIET
_LATE = 10 * _TIMEOUT  # for a peer that has to do something, on a busy machine
_KEEPALIVE = 80
_BAUD = 100000000  # a test has no time to fill all that lies behind a slower line
_PAYLOAD = bytes(1000)


def path(port):
    if _THROUGH == "tls":
        from umotemq.tls import Tls

        return Tls("127.0.0.1", port, ca=_FOLDER + _GIVEN["ca"])
    if _IS_UART:
        from umotemq.uart import Uart

        return Uart(port, _BAUD, quiet_ms=_QUIET)
    return Tcp("127.0.0.1", port)


def leave(transport):
    """Let go of the line, if it is one."""
    if _IS_UART and transport:
        transport.uart.deinit()


def fmqp(transport, got):
    from umotemq.fmqp import FmqpClient

    return _subscribed(FmqpClient(transport, **_options()), got)


def lightmq(transport, got):
    from umotemq.lightmq import LightmqClient

    def handler(data):
        got.append(data)
        return b""

    return LightmqClient(transport, "-".join(sys.argv[2:]).encode(), handler=handler, **_options())


def micromsg2(transport, got):
    from umotemq.micromsg2 import MicroMsg2Client

    return _subscribed(MicroMsg2Client(transport, **_options()), got)


def _subscribed(client, got):
    client.subscribe(b"faults/*", lambda topic, payload: got.append(payload))
    return client


_EACH = [make for make in (fmqp, lightmq, micromsg2) if make.__name__ in sys.argv[4].split("+")]
_FIRST = _EACH[0]  # which publishes


def _options():
    return {
        "timeout_ms": _TIMEOUT,
        "keepalive_ms": _KEEPALIVE,
        "retry_ms": 40,
        "retry_max_ms": 80,
        "tx_size": 1100,
    }


async def notice(make, fault, configured_ms, kinds, work=None):
    """The error must be one of ``kinds`` and come in time; then a good broker must do.

    ``configured_ms`` 0: it comes of what the peer does, whenever it does it; not of a timeout.
    """
    got = []
    first = path(_GIVEN["faults"][fault])
    transport = Changeable(first)
    client = make(transport, got)
    if not configured_ms:
        client.timeout_ms = _LATE
    seen = []
    second = None
    try:
        async with Driver(client) as link:
            start = now()
            if "then" in fault:  # it begins when the link is up, and may be over at once
                await link.until(lambda: client.connects or client.error)
                start = now()
            if work:
                start = await work(link)
            await link.until(lambda: client.error)
            took = since(start)
            error = client.error
            equal(error.args[0] in kinds, True, "%s: %r %s" % (fault, error, error))
            in_time = took <= (configured_ms or _LATE) + _GRACE
            client.timeout_ms = _TIMEOUT
            equal(in_time, True, "%s: %d ms, %s" % (fault, took, error))
            seen.append(took)
            leave(first)
            # A board has room for one TLS context, hardly for two.
            first = transport.target = None
            gc.collect()
            second = transport.target = path(_GIVEN["good"][make.__name__])
            connects = client.connects
            await link.until(lambda: client.up and client.connects > connects)
            await _works(link, make, got)
    finally:
        for used in (first, second):
            leave(used)
        gc.collect()
    print("%s, %s: noticed in %d ms: %s" % (fault, _THROUGH, seen[0], error))


async def _works(link, make, got):
    # A line may hiccup once more: a bridge whose thread was late has closed its session.
    del got[:]
    for _ in range(20):
        try:
            if make is lightmq:
                equal(await link.send(b"x", 2000), b"")
                return
            await link.publish(b"faults/again", b"back")
            await link.until(lambda: b"back" in got or not link.client.up)
            if b"back" in got:
                return
        except LinkError:
            pass
        await link.until(lambda: link.client.up)
    raise AssertionError("no good link")


_count = [0]


def is_ours():
    """Count one more piece of the matrix; say whether it is in our part."""
    _count[0] += 1
    return _count[0] % _PARTS == _PART


def each(fault, configured_ms, kinds, protocols=(fmqp, lightmq, micromsg2), work=None):
    for make in protocols:
        if make not in _EACH:
            continue
        name = make.__name__ + "_" + fault if fault[:4] == "then" else fault
        if is_ours():
            to_end(notice(make, name, configured_ms, kinds, work))


# A bridge that was late has closed its session, and what comes of the next one fits nothing.
_SILENT = ("timeout", "wire") if _IS_UART else ("timeout",)
# A serial line cannot show a close: there the client hears nothing, and asks.
_CLOSED = _SILENT if _IS_UART else ("closed", "lost", "connect")
_CLOSED_MS = _KEEPALIVE + _TIMEOUT if _IS_UART else 0


@check
def refused_and_black_holed_connects():
    each("refused", _TIMEOUT if _IS_UART else 0, _CLOSED)
    each("black_hole", _TIMEOUT, ("timeout",))


@check
def a_peer_that_never_answers():
    each("silent", _TIMEOUT, ("timeout",))


@check
def a_peer_that_answers_no_more():
    each("then_silent", _KEEPALIVE + _TIMEOUT, _SILENT)


@check
def half_a_message_then_silence():
    each("half_connack", _TIMEOUT, _SILENT, (lightmq,))
    each("half_reply", _TIMEOUT, _SILENT, (micromsg2,))
    each("then_half", _KEEPALIVE + _TIMEOUT, _SILENT)
    each("then_long_half", _KEEPALIVE + _TIMEOUT, _SILENT)


@check
def an_absurd_length():
    each("then_absurd", 0, ("wire",))


@check
def garbage():
    each("garbage", _TIMEOUT, ("wire", "timeout"))
    each("then_garbage", _KEEPALIVE + _TIMEOUT, ("wire", "timeout"))


@check
def a_peer_that_stops_reading():
    # Return when that began which then failed: before, there was room on the way.
    async def publish(link):
        while True:
            start = now()
            try:
                await link.publish(b"a/b", _PAYLOAD)
            except LinkError:
                return start

    async def send(link):
        while True:
            start = now()
            try:
                await link.send(_PAYLOAD, 0)
            except LinkError:
                if link.client.error:
                    return start
                # Nobody answers here; the next one is tried at once.

    each("then_reads_nothing", _TIMEOUT, ("timeout",), (fmqp, micromsg2), publish)
    each("then_reads_nothing", _TIMEOUT, ("timeout",), (lightmq,), send)


@check
def a_close_and_a_reset():
    for fault in ("fin", "reset"):
        each(fault, _CLOSED_MS, _CLOSED)
        each("then_" + fault, _CLOSED_MS, _CLOSED)


@check
def a_refusal():
    each("refusal", 0, ("refused",), (lightmq,))
    each("error", 0, ("refused",), (micromsg2,))


@check
def one_byte_at_a_time():
    async def all_of_it(make):
        got = []
        transport = path(_GIVEN["faults"][make.__name__ + "_then_bytewise"])
        client = make(transport, got)
        client.timeout_ms = _LATE  # a pause of the sender is no fault
        async with Driver(client) as link:
            await link.until(lambda: len(got) == 50 or client.error)
        equal([int(data) for data in got], list(range(50)), repr(client.error))
        leave(transport)

    for make in _EACH:
        if is_ours():
            to_end(all_of_it(make))
            print("%s bytewise, %s: survived" % (make.__name__, _THROUGH))


@check
def a_watchdog_is_fed_only_while_the_link_is_proven_alive():
    async def feeding(port, until):
        fed = []
        transport = path(port)
        client = _FIRST(transport, [])
        client.alive = lambda: fed.append(client.up)
        async with Driver(client) as link:
            await link.until(lambda: until(client, fed))
        leave(transport)
        gc.collect()
        equal(False in fed, False)
        counts.append(len(fed))

    if not is_ours():
        return
    counts = []
    to_end(feeding(_GIVEN["good"][_FIRST.__name__], lambda client, fed: len(fed) >= 5))
    # It was up, and was asked; what it did not answer feeds nothing.
    silent = _GIVEN["faults"][_FIRST.__name__ + "_then_silent"]
    to_end(feeding(silent, lambda client, fed: client.connects and client.error))
    equal(counts[1] <= 1, True, "fed %d times" % counts[1])
    print("watchdog, %s: fed by the living only" % _THROUGH)


@check
def awake_for_one_value():
    # What a board does between two deep sleeps: connect, publish, ask whether it came, close.
    async def wake():
        start = now()
        transport = path(_GIVEN["good"][_FIRST.__name__ + "_timed"])
        client = _FIRST(transport, [])
        client.timeout_ms = _LATE
        async with Driver(client) as link:
            await link.until(lambda: client.up)
            await link.publish(b"cellar/temperature", b"8.5")
            await link.ping(_LATE)
        took = since(start)
        leave(transport)
        # Of milliseconds, but for the broker's turn to come.
        equal(took < _QUIET + 1500, True, "awake for %d ms" % took)
        print("awake, %s: %d ms" % (_THROUGH, took))

    if is_ours():
        to_end(wake())


LineMachine().install()
run()
