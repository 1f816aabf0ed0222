"""The MicroMsg2 client and the real broker. Argument: a file, JSON, ports by name."""

import io

from checks import check, equal, raises, run
from live_clients import SOON_MS, fmqp, until, up
from live_micromsg2 import micromsg2

from umotemq.fragments import FragmentClient
from umotemq.outage import Ring


@check
def what_is_published_is_heard_by_all():
    got = []
    client = micromsg2(b"one")
    client.subscribe("mm/*", lambda topic, payload: got.append((topic, payload, client.properties)))
    client.subscribe("nn", lambda topic, payload: got.append((topic, payload)), filter="n>N3")
    up(client)
    old = up(fmqp())
    old.subscribe("mm/*", lambda topic, payload: heard.append((topic, payload)))
    old.ping(SOON_MS)
    heard = []
    client.publish("mm/a", "21.5 °C", properties="n:N1")
    old.publish("mm/b", "plain")
    for n in ("N3", "N4", "Tnone"):
        client.publish("nn", n, properties="n:" + n)
    until(lambda: len(got) == 3 and len(heard) == 2, client, old)
    client.ping(SOON_MS)
    got.sort()
    want = [(b"mm/a", "21.5 °C".encode(), b"n:N1"), (b"mm/b", b"plain", b""), (b"nn", b"N4")]
    equal(got, want)
    client.unsubscribe("mm/*")
    client.publish("mm/a", "x")
    client.ping(SOON_MS)
    equal(len(got), 3)
    client.close()
    old.close()


@check
def a_queue_gives_each_message_to_one_and_none_is_lost():
    got = []
    seen = []
    ring = Ring(1000)
    client = up(micromsg2(b"one", outage=ring))
    for n in range(20):
        client.publish("jobs/1", "%d" % n, queued=True, confirm=True)
    until(lambda: not ring.count, client)

    def fails(topic, payload):
        got.append(int(payload))
        if len(got) == 5:
            raise KeyError("the power fails")

    worker = micromsg2(b"two", window=5)
    worker.subscribe("jobs/1", fails, queued=True)
    raises(KeyError, lambda: until(lambda: False, worker))
    worker.stream.close()
    worker._drop(None, -1)
    other = micromsg2(b"three")

    def work(topic, payload):
        seen.append((int(payload), b"redelivered:N1" in other.properties))

    other.subscribe("jobs/1", work, queued=True)
    up(other)
    until(lambda: seen and seen[-1][0] == 19, other)
    numbers = [number for number, _ in seen]
    equal(numbers, list(range(numbers[0], 20)))
    equal((numbers[0] <= 5, seen[0][1], seen[-1][1]), (True, True, False), repr(seen[:3]))
    for each in (client, other):
        each.close()


@check
def long_payloads_go_in_fragments_and_come_whole():
    got = []
    payload = b"0123456789abcdef!" * 90
    client = micromsg2(b"long", kind=FragmentClient, rx_size=1700, message_size=0, window=4)
    client.subscribe("long/1", lambda topic, data: got.append(data))
    up(client)
    client.publish_from("long/1", len(payload), io.BytesIO(payload))
    until(lambda: got, client)
    equal(got == [payload], True)
    client.close()


@check
def nothing_confirmed_is_lost_in_cut_connections():
    heard = [0, 0, 0]  # the number that comes next, how many came twice, how many are missing

    def hear(topic, payload):
        number = int(payload)
        if number < heard[0]:
            heard[1] += 1
            return
        heard[2] += number - heard[0]
        heard[0] = number + 1

    listener = up(fmqp())
    listener.subscribe("sure/1", hear)
    listener.ping(SOON_MS)
    ring = Ring(2000)
    client = up(micromsg2(b"cut", "cut_micromsg2", outage=ring, retry_ms=5, window=16))
    client.subscribe("sure/*", lambda topic, payload: None)
    number = 0
    while client.connects < 6:
        if client.up or not ring.is_full(client):  # a full ring has to drop, without a link
            client.publish("sure/1", "%d" % number, confirm=True)
            number += 1
        client.poll(0 if client.up else 20)
        listener.poll(0)
    until(lambda: not ring.count and heard[0] == number, client, listener)
    equal((heard[2], ring.dropped), (0, 0), "%d readings" % number)
    print("%d readings, %d of them twice" % (number, heard[1]))
    client.close()
    listener.close()


run()
