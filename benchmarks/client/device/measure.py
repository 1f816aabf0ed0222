"""One measurement of one client. Arguments: MEASURE CLIENT PORT COUNT; prints NAME VALUE lines.

CLIENT is a module here (client_...). Times are µs.
"""

import gc
import sys
from time import ticks_diff, ticks_us

import traffic


def say(name, value):
    print("%s %s" % (name, value))


def text(number):
    # As long whatever it says: a client may prepare something once per length.
    return b"%08d" % number


def allocated(work, count):
    """Return the bytes that ``work(count)`` takes per message, with the collector off."""
    work(4)  # caches are filled now
    # What is taken once and not per message is in both, and in none of the result.
    return (taken(work, 2 * count) - taken(work, count)) / count


def taken(work, count):
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    work(count)
    took = gc.mem_alloc() - before
    gc.enable()
    return took


def size_of(count, frame, topics=(traffic.SINK,)):
    """Return the bytes of so many publications: what the endpoint shall take without looking."""
    each = sum(frame + len(topic) + len(traffic.PAYLOAD) for topic in topics)
    return text(count // len(topics) * each)


def memory(module, port, count):
    gc.collect()
    start = gc.mem_alloc()
    client = module.Client(port)
    gc.collect()
    made = gc.mem_alloc()
    client.connect()
    gc.collect()
    say("object", made - start - client.buffers)
    say("connected", gc.mem_alloc() - made)
    client.close()


def heap(module, port, count):
    client = module.Client(port)
    client.connect()

    def publish(count):
        client.publish(traffic.SINK, traffic.PAYLOAD, count)

    say("publish", allocated(publish, count))

    def echo(count):
        for _ in range(count):
            client.publish(traffic.ECHO, traffic.PAYLOAD)
            client.receive_until(client.count + 1)

    # Less, where the peer's pause between small writes would make it take a minute.
    say("round_trip", allocated(echo, min(count, 100)))

    def receive(command):
        def work(count):
            client.publish(command, text(count))
            client.receive_until(client.count + count)

        return allocated(work, count)

    say("receive", receive(traffic.DRIP))
    say("receive_burst", receive(traffic.BURST))
    client.close()


def calls(module, port, count):
    client = module.Client(port, counted=True)
    client.connect()
    stream = client.stream
    stream.writes = 0
    client.publish(traffic.SINK, traffic.PAYLOAD, count)
    say("writes", stream.writes / count)
    client.publish(traffic.BURST, text(count))
    stream.reads = 0
    client.receive_until(client.count + count)
    say("reads", stream.reads / count)
    client.close()


def rates(module, port, count):
    client = module.Client(port)
    client.connect()
    client.publish(traffic.BURST, b"100")
    client.receive_until(client.count + 100)
    gc.collect()
    client.publish(traffic.ABSORB, size_of(count, module.FRAME))
    start = ticks_us()
    client.publish(traffic.SINK, traffic.PAYLOAD, count)
    # The endpoint has them all: nothing that is left in a buffer counts as sent.
    client.receive_until(client.count + 1)
    say("publish", ticks_diff(ticks_us(), start) / count)
    gc.collect()
    last = client.count + count
    client.publish(traffic.BURST, text(count))
    client.receive_until(client.count + 1)
    first = client.count
    start = ticks_us()
    client.receive_until(last)
    say("receive", ticks_diff(ticks_us(), start) / (last - first))
    gc.collect()
    client.publish(traffic.ABSORB, size_of(count, module.FRAME, traffic.SINKS))
    start = ticks_us()
    client.publish_in_turn(traffic.SINKS, traffic.PAYLOAD, count)
    client.receive_until(client.count + 1)
    say("in_turn", ticks_diff(ticks_us(), start) / count)
    client.close()


def together(module, port, count):
    client = module.Client(port, tx_size=1024)
    client.connect()
    gc.collect()
    client.publish(traffic.ABSORB, size_of(count, module.FRAME))
    start = ticks_us()
    client.publish_together(traffic.SINK, traffic.PAYLOAD, count)
    client.receive_until(client.count + 1)
    say("publish", ticks_diff(ticks_us(), start) / count)
    client.close()


def echo(module, port, count):
    client = module.Client(port)
    client.connect()
    times = []
    began = ticks_us()
    while len(times) < count and ticks_diff(ticks_us(), began) < 1000000:
        gc.collect()
        start = ticks_us()
        client.publish(traffic.ECHO, traffic.PAYLOAD)
        client.receive_until(client.count + 1)
        times.append(ticks_diff(ticks_us(), start))
    times.sort()
    say("p50", times[len(times) // 2])
    client.close()


def main():
    name, client, port, count = sys.argv[1:5]
    globals()[name](__import__(client), int(port), int(count))


if __name__ == "__main__":
    main()
