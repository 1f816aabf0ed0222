"""A client against a peer that fails. Arguments: CLIENT PORT ROLE KEEPALIVE_MS TIMEOUT_MS.

ROLE: ``subscriber`` waits for messages, ``publisher`` sends without a pause. Prints
``noticed MS WHAT`` as soon as the client tells its program that something is wrong; the time is
since it was connected, or since it began to connect if it never was. A publisher's is since it
began the publication that failed: until then the system's buffers, megabytes here, took all.
"""

import sys
from time import ticks_diff, ticks_ms


def main():
    name, port, role, keepalive_ms, timeout_ms = sys.argv[1:6]
    module = __import__(name)
    if name in ("client_fmqp", "client_lightmq"):
        options = {"keepalive_ms": int(keepalive_ms), "timeout_ms": int(timeout_ms), "retry_ms": 0}
    else:
        options = {"keepalive": int(keepalive_ms) // 1000}
    start = ticks_ms()
    try:
        client = module.Client(int(port), **options)
        client.connect()
        start = ticks_ms()
        print("connected")
        payload = bytes(64)
        while True:
            if role == "publisher":
                start = ticks_ms()
                client.publish(b"bench/sink/00001", payload)
            else:
                client.watch(1000)
    except Exception as error:
        print("noticed %d %s: %s" % (ticks_diff(ticks_ms(), start), type(error).__name__, error))


main()
