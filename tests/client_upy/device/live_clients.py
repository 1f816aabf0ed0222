"""Clients of a running broker. The program's first argument: a file, JSON, ports by name.

A port is a number, on this machine; or the arguments of a Uart whose bridge ends at the broker.
"""

import asyncio
import json
import sys
import time

from checks import is_kind

SOON_MS = 30000  # a busy machine's broker may take seconds for what takes no time elsewhere

with open(sys.argv[1]) as _file:
    PORTS = json.load(_file)


def way(port):
    """Return the transport to one of ``PORTS``."""
    if isinstance(PORTS[port], list):
        from umotemq.uart import Uart

        return Uart(*PORTS[port])
    from umotemq.tcp import Tcp

    return Tcp("127.0.0.1", PORTS[port])


# Each imports its own: a small heap does not hold all protocols.


def fmqp(port="fmqp", kind=None, **options):
    """Return a client that is not connected yet."""
    from umotemq.fmqp import FmqpClient

    if isinstance(PORTS[port], list):
        options.setdefault("keepalive_ms", 500)  # a raw bridge ends the session of a silent board
    options.setdefault("timeout_ms", SOON_MS)
    return (kind or FmqpClient)(way(port), **options)


def lightmq(client_id, port="lightmq", **options):
    """Return a client that is not connected yet."""
    from umotemq.lightmq import LightmqClient

    options.setdefault("timeout_ms", SOON_MS)
    return LightmqClient(way(port), client_id, **options)


def up(client):
    """Connect; return the client."""
    client.connect(timeout_ms=SOON_MS)
    return client


def until(done, *clients):
    """Poll the clients in turn until ``done()``; fail after ``SOON_MS``."""
    end = time.ticks_ms()
    while not done():
        for client in clients:
            client.poll(10)
        if time.ticks_diff(time.ticks_ms(), end) > SOON_MS:
            raise AssertionError("not in time; errors: %r" % [c.error for c in clients])


# ---- under asyncio ----


def ran(coroutine):
    """Run it in a loop of its own, for at most 60 s."""
    if hasattr(asyncio, "new_event_loop") and hasattr(asyncio, "core"):
        asyncio.new_event_loop()  # MicroPython has one, which an error would leave dirty
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def soon(done):
    """Return when ``done()``; fail after ``SOON_MS``."""
    end = time.ticks_ms()
    while not done():
        await asyncio.sleep_ms(2)
        if time.ticks_diff(time.ticks_ms(), end) > SOON_MS:
            raise AssertionError("not in time")


async def raised(kind, awaitable):
    """Await; return the exception that this must raise, as ``checks.raises``."""
    try:
        await awaitable
    except Exception as error:
        return is_kind(error, kind)
    raise AssertionError("%s was not raised" % (kind,))
