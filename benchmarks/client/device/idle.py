"""How often an idle client wakes. Arguments: KEEPALIVE_MS PORT INTERVALS; prints NAME VALUE lines.

The kernel counts how often a process gives up the processor to wait. All are per interval.
"""

import sys
from time import ticks_add, ticks_diff, ticks_ms

import client_fmqp


def switches():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("voluntary_ctxt_switches"):
                return int(line.split()[1])


def main():
    keepalive_ms, port, intervals = [int(argument) for argument in sys.argv[1:4]]
    client = client_fmqp.Client(port, counted=True, keepalive_ms=keepalive_ms)
    client.connect()
    client.idle(2 * keepalive_ms)
    until = ticks_add(ticks_ms(), intervals * keepalive_ms)
    got = client.stream.got
    before = switches()
    while ticks_diff(until, ticks_ms()) > 0:
        client.idle(ticks_diff(until, ticks_ms()))
    switched = switches() - before
    answers = client.stream.got - got
    print("switches %s" % (switched / intervals))
    print("answers %s" % (answers / intervals))
    # What woke it, if not an answer, was the clock.
    print("timers %s" % ((switched - answers) / intervals))


main()
