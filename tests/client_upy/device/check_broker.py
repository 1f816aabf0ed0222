"""The sync clients and the real broker. Argument: a file, JSON, ports by name."""

import time

from checks import check, equal, raises, run, within
from live_clients import PORTS, SOON_MS, fmqp, lightmq, until, up, way

from umotemq.carried import Carried
from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError
from umotemq.outage import Ring
from umotemq.tcp import Tcp
from umotemq.wanted import Publisher


@check
def the_broker_confirms_what_it_has():
    got = []
    listener = up(fmqp())
    listener.subscribe("confirm/1", lambda topic, payload: got.append(payload))
    listener.ping(SOON_MS)
    client = up(fmqp(outage=Ring(400)))
    for n in range(40):
        client.publish("confirm/1", "%d" % n, confirm=True)
    until(lambda: not client.outage.count and len(got) == 40, client, listener)
    equal((got, client.outage.dropped), ([b"%d" % n for n in range(40)], 0))
    board = up(lightmq(b"confirming", outage=Ring(400)))
    for _ in range(10):
        board.post("x", confirm=True)
    until(lambda: not board.outage.count, board)
    equal((board.outage.dropped, board.unanswered), (0, 0))
    for each in (listener, client, board):
        each.close()


@check
def pings_are_not_everybodys():
    client = up(fmqp())
    got = []

    def hear(topic, payload):
        if b"ping" in topic:
            got.append(topic)

    # By debug subscriptions: no sensor of another program here is wanted because of them.
    for levels in range(1, 6):
        client.subscribe("/".join(["*"] * levels), hear, debug=True)
    other = up(fmqp())
    for _ in range(3):
        other.ping(SOON_MS)
    other.close()
    client.ping(SOON_MS)  # everything that all programs here say comes before the answer
    equal(got, [])
    client.close()


@check
def messages_wills_and_what_is_cached():
    got = []
    listener = up(fmqp())
    listener.subscribe(b"c/*", lambda topic, payload: got.append((topic, payload)))
    listener.ping(SOON_MS)
    client = up(fmqp())
    client.publish(b"c/will", b"gone", will=True)
    client.publish(b"c/kept", b"1", retain=True)
    client.publish(b"c/now", b"2")
    client.ping(SOON_MS)
    until(lambda: len(got) == 2, listener)
    client.close()
    until(lambda: len(got) == 3, listener)
    equal(got, [(b"c/kept", b"1"), (b"c/now", b"2"), (b"c/will", b"gone")])
    late = up(fmqp())
    late.subscribe(b"c/*", lambda topic, payload: got.append(payload))
    late.ping(SOON_MS)
    equal(got[3:], [b"1"])
    late.publish(b"c/kept", b"", retain=True)
    late.ping(SOON_MS)
    late.close()
    listener.close()


@check
def a_name_with_several_addresses_is_quick():
    # Here often ::1 first, where nobody listens. A peer that says nothing will do, without a ping.
    client = FmqpClient(Tcp("localhost", PORTS["stuck"]), name=b"", retry_ms=0)
    within(0, 1000, client.connect, timeout_ms=5000)
    client.close()


@check
def a_refused_connect_is_told_at_once():
    client = fmqp("refused", retry_ms=0)
    error = within(0, 1000, raises, LinkError, client.connect, timeout_ms=5000)
    equal(error.args[0], "connect")
    error = raises(LinkError, FmqpClient(Tcp("256.0.0.1", 1), retry_ms=0).connect, timeout_ms=300)
    equal(error.args[0], "connect")


@check
def an_echo_is_quick():
    client = up(fmqp())
    # Nagle would hold up every one for 40 ms; a busy machine holds up many.
    quick = 0
    for _ in range(700):  # at 40 ms each: 28 s
        quick += client.ping(SOON_MS) < 5000
        if quick == 5:
            break
    equal(quick, 5)
    client.close()


@check
def a_sensor_works_only_while_somebody_listens():
    changes = []
    client = up(fmqp())
    sensor = Publisher(client, b"w/1", changes.append)
    client.ping(SOON_MS)
    equal((sensor.wanted, sensor.publish(b"x")), (False, False))
    got = []
    listener = up(fmqp())
    listener.subscribe(b"w/*", lambda topic, payload: got.append(payload))
    until(lambda: sensor.wanted, client, listener)
    other = up(fmqp())
    other.subscribe(b"w/1", print)
    other.ping(SOON_MS)
    client.ping(SOON_MS)
    other.close()
    client.ping(SOON_MS)
    equal((sensor.wanted, sensor.publish(b"21.5")), (True, True))
    until(lambda: got == [b"21.5"], client, listener)
    listener.unsubscribe(b"w/*")
    until(lambda: not sensor.wanted, client, listener)
    watcher = up(fmqp())
    watcher.subscribe(b"w/1", print, debug=True)
    watcher.ping(SOON_MS)
    client.ping(SOON_MS)
    equal((sensor.wanted, changes), (False, [True, False]))
    equal(sensor.publish(b"y", retain=True), True)
    listener.subscribe(b"w/1", lambda topic, payload: None)
    until(lambda: sensor.wanted, client, listener)
    client.publish(b"w/1", b"", retain=True)
    client.ping(SOON_MS)
    client.transport = way("refused")
    client.stream.close()
    client._drop(None, 0)
    # A lost link is a change too, and the broker tells anew on the next one.
    equal((sensor.wanted, changes), (False, [True, False, True, False]))
    client.transport = way("fmqp")
    client._due = time.ticks_ms()
    until(lambda: sensor.wanted, client, listener)
    equal(changes, [True, False, True, False, True])
    client.close()
    equal((sensor.wanted, changes), (False, [True, False, True, False, True, False]))
    for one in (listener, watcher):
        one.close()


@check
def two_sensors_of_one_client_are_told():
    client = up(fmqp())
    changes = []
    for name in (b"w/2", b"w/3"):
        Publisher(client, name, lambda wanted, name=name: changes.append((name, wanted)))
    client.subscribe(b"w/*", print)
    until(lambda: len(changes) == 2, client)
    client.close()
    want = [(name, wanted) for wanted in (False, True) for name in (b"w/2", b"w/3")]
    equal(sorted(changes), sorted(want))


@check
def lightmq_asks_and_answers():
    got = []

    def handler(data):
        got.append(data)
        return b"yes " + data

    board = up(lightmq(b"asked", handler=handler))
    equal(board.ping(SOON_MS) > 0, True)
    equal(isinstance(board.send(b"hello"), bytes), True)
    for _ in range(20):
        board.post(b"x")
    board.flush()
    replies = []
    other = up(fmqp())
    other.subscribe(b"lightmq/asked/reply", lambda topic, payload: replies.append(payload))
    other.publish(b"lightmq/asked/down", b"lamp")
    until(lambda: replies, board, other)
    equal((got, replies), ([b"lamp"], [b"yes lamp"]))
    board.close()
    other.close()


@check
def fmqp_is_carried_by_lightmq():
    for port in ("carried", "pieces"):
        _carried(port)


def _carried(port):
    def carried(name, **options):
        session = lightmq(name, port, tx_size=262)
        return FmqpClient(Carried(session), retry_ms=20, **options)

    got = []
    client = carried(b"me", keepalive_ms=200)
    client.subscribe(b"l/*", lambda topic, payload: got.append((topic, payload)))
    client.publish(b"l/will", b"gone", will=True)
    client.connect(timeout_ms=SOON_MS)
    for n in range(20):
        client.publish(b"l/1", b"%d" % n)
    equal(client.ping(SOON_MS) > 0, True)
    equal(got, [(b"l/1", b"%d" % n) for n in range(20)])
    got.clear()
    client.poll(500)
    client.poll(500)
    equal(client.connects, 1)
    other = carried(b"other")
    other.subscribe(b"l/will", lambda topic, payload: got.append(payload))
    other.connect(timeout_ms=SOON_MS)
    other.ping(SOON_MS)
    client._drop(None, 0)
    until(lambda: got, other)
    equal(got, [b"gone"])
    client.connect(timeout_ms=SOON_MS)
    client.publish(b"l/2", b"again")
    until(lambda: len(got) == 2, client, other)
    client.close()
    other.close()


_ON_THE_WAY = 50  # messages at most when a connection is cut
_MEANWHILE = 20  # messages while there is no connection


@check
def numbers_survive_cut_connections_in_order():
    heard = [-1, 0, 0]  # the last one, how many, how many out of order

    def hear(topic, payload):
        heard[2] += int(payload) <= heard[0]
        heard[0] = int(payload)
        heard[1] += 1

    listener = up(fmqp())
    listener.subscribe(b"o/1", hear)
    listener.ping(SOON_MS)
    ring = Ring(2000)
    client = up(fmqp("cut", outage=ring, retry_ms=5))
    client.subscribe(b"o/*", lambda topic, payload: None)
    number = down = 0
    while client.connects < 6:
        down = 0 if client.up else down + 1
        if down <= _MEANWHILE:
            client.publish(b"o/1", b"%d" % number)
            number += 1
        client.poll(0)
        listener.poll(0)
        if not client.up:
            time.sleep_ms(1)
        elif number % _ON_THE_WAY == 0:
            try:
                client.ping(SOON_MS)
            except LinkError:
                pass  # it was cut
    client.connect(timeout_ms=SOON_MS)
    client.ping(SOON_MS)
    until(lambda: heard[0] == number - 1, client, listener)
    equal(heard[2], 0, "in order, none twice")
    # What was in the cut connections is lost, what came while there was none is not. When a
    # connection is there at last, the latter is on the way, too.
    equal((ring.dropped, len(ring)), (0, 0))
    lost = number - heard[1]
    most = client.connects * (_ON_THE_WAY + _MEANWHILE)
    equal(lost <= most < number // 2, True, "%d of %d" % (heard[1], number))
    client.close()
    listener.close()


@check
def nothing_is_asked_of_a_lost_link():
    client = up(fmqp())
    client.close()
    raises(LinkError, client.ping, 100)
    stuck = fmqp("stuck", timeout_ms=200, retry_ms=0)
    error = within(190, 1200, raises, LinkError, stuck.connect, timeout_ms=5000)
    equal(error.args[0], "timeout")
    client = fmqp("stuck", name=b"", timeout_ms=200, retry_ms=0)
    client.connect(timeout_ms=1000)
    silent = up(fmqp())
    silent.subscribe(b"lightmq/blind/up/*", lambda topic, payload: None)  # and answers nothing
    silent.ping(SOON_MS)
    blind = up(lightmq(b"blind"))
    within(90, 1000, raises, "timeout", blind.send, b"x", 100)
    blind.close()
    silent.close()
    payload = bytes(200)

    def publish():
        while True:
            client.publish(b"a", payload)

    within(190, 5000, raises, LinkError, publish)


run()
