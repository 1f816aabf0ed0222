"""TLS to the real broker, and to peers that are not what they should be.

Argument: a folder with ports.json ({name: port}) and the certificates as PEM files.
"""

import gc
import json
import socket
import sys
import time

from checks import check, equal, raises, run, within

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.link import LinkError
from umotemq.tls import Tls

_FOLDER = sys.argv[1] + "/"
_CA = _FOLDER + "ours.pem"
with open(_FOLDER + "ports.json") as _file:
    _PORTS = json.load(_file)
_GRACE = 1000  # ms after the configured time


def content(name):
    with open(_FOLDER + name, "rb") as file:
        return file.read()


def der(pem):
    from binascii import a2b_base64

    return a2b_base64(pem.split(b"-----")[2])


def tls(name, server_hostname=None, ca=_CA, **options):
    return Tls("127.0.0.1", _PORTS[name], server_hostname, ca=ca, **options)


def echoes(transport):
    """Fail unless a publication comes back."""
    client = FmqpClient(transport, timeout_ms=2000)
    got = []
    client.subscribe(b"tls/*", lambda topic, payload: got.append((topic, payload)))
    client.connect(timeout_ms=30000)
    client.publish(b"tls/a", b"hello")
    client.ping(5000)
    equal(got, [(b"tls/a", b"hello")])
    client.close()


def failure(transport, *words, timeout_ms=1000):
    """Return the error that must come within the time and have one of the words."""
    client = FmqpClient(transport, timeout_ms=timeout_ms, retry_ms=0)
    error = within(0, timeout_ms + _GRACE, raises, LinkError, client.connect, timeout_ms=10000)
    equal(any(word in str(error) for word in words), True, str(error))
    equal(client.stream, None)
    return error


@check
def both_protocols():
    echoes(tls("fmqps"))
    answered = LightmqClient(tls("lightmqs"), b"attic", timeout_ms=2000)
    answered.connect(timeout_ms=30000)
    equal(answered.send(b"x"), b"")
    equal(answered.ping(5000) > 0, True)
    answered.close()


@check
def an_authority_in_every_form():
    pem = content("ours.pem")
    echoes(tls("fmqps", ca=pem))
    echoes(tls("fmqps", ca=der(pem)))
    # Several in one file, the right one anywhere.
    echoes(tls("fmqps", ca=content("theirs.pem") + pem))
    echoes(tls("fmqps", ca=pem + content("theirs.pem")))


@check
def an_authority_nobody_trusts():
    words = ("correctly signed", "issuer")
    failure(tls("fmqps", ca=_FOLDER + "theirs.pem"), *words)
    echoes(tls("fmqps", ca=None, verify=False))


@check
def the_name_is_looked_at():
    words = ("does not match", "not valid for")
    failure(tls("fmqps", "broker.example"), *words)
    failure(tls("named"), *words)
    echoes(tls("named", "broker.example"))


@check
def a_certificate_that_has_expired():
    failure(tls("expired"), "expired")


@check
def a_clock_that_is_not_set():
    # A board begins in 2000 or 1970: no certificate is valid yet, and the error says why.
    import umotemq.tls

    real = umotemq.tls.time
    equal(failure(tls("expired"), "expired").args[0].find("clock"), -1)

    class Beginning:
        def gmtime(self):
            return (2000, 1, 1, 0, 0, 0, 5, 1)

    try:
        umotemq.tls.time = Beginning()
        failure(tls("expired"), "clock is not set")
    finally:
        umotemq.tls.time = real


@check
def a_broker_that_wants_our_certificate():
    cert, key = content("attic.pem"), content("attic.key")
    echoes(tls("mutual", cert=_FOLDER + "attic.pem", key=_FOLDER + "attic.key"))
    echoes(tls("mutual", cert=cert, key=key))
    echoes(tls("mutual", cert=der(cert), key=der(key)))
    failure(tls("mutual"), "certificate of ours")
    foreign = tls("mutual", cert=_FOLDER + "stranger.pem", key=_FOLDER + "stranger.key")
    failure(foreign, "certificate of ours")


@check
def what_cannot_be_used_is_told_at_once():
    raises(ValueError, tls, "fmqps", ca=None)
    raises(ValueError, tls, "fmqps", ca=b"no certificate")
    raises(ValueError, tls, "fmqps", ca=content("attic.key"))
    raises(OSError, tls, "fmqps", ca="/no/such/file")
    raises(ValueError, tls, "mutual", cert=b"none", key=b"none")
    raises(ValueError, tls, "mutual", cert=content("attic.pem"), key=b"none")


@check
def a_peer_that_never_answers_the_handshake():
    client = FmqpClient(tls("silent"), timeout_ms=300, retry_ms=0)
    error = within(290, 300 + _GRACE, raises, "timeout", client.connect, timeout_ms=10000)
    equal(error.args[0] == "timeout", True, str(error))


@check
def a_peer_that_speaks_no_tls():
    failure(tls("garbage"), "TLS spoken")
    failure(tls("fin"), "TLS spoken")
    failure(tls("refused"), "refused", "111")
    failure(tls("reset"), "TLS spoken")


@check
def a_failed_handshake_leaves_no_socket():
    # MicroPython's TLS object lets go of its socket then, and closes nothing.
    def lowest_free():
        gc.collect()
        sock = socket.socket()
        number = sock.fileno()
        sock.close()
        return number

    before = lowest_free()
    for _ in range(5):
        failure(tls("expired"), "expired")
        failure(tls("garbage"), "TLS spoken")
        failure(tls("fin"), "TLS spoken")
    equal(lowest_free(), before)


@check
def bytes_arrive_whole_however_slowly_they_are_read():
    # A record that went in part is tried again, with more behind it than at first: Mbed TLS
    # would say that all of it was sent.
    stream = tls("late").open()
    sock = getattr(stream._sock, "_sock", stream._sock)
    sock.setsockopt(1, 7, 4096)  # SO_SNDBUF: partial writes are usual
    pattern = bytes(range(251)) * 10
    total = 100000
    pending = b""
    room = bytearray(1000)
    made = back = refusals = 0
    start = time.ticks_ms()
    while back < total:
        equal(time.ticks_diff(time.ticks_ms(), start) < 20000, True, "%d came back" % back)
        if made < total and len(pending) < 4000:
            more = min(100, total - made)
            pending += pattern[made % 251 : made % 251 + more]
            made += more
        sent = stream.write(memoryview(pending)) if pending else 0
        refusals += sent is None
        pending = pending[sent or 0 :]
        count = stream.readinto(room) or 0
        equal(bytes(room[:count]), pattern[back % 251 : back % 251 + count], "at %d" % back)
        back += count
    equal(refusals > 0, True)
    stream.close()


@check
def messages_allocate_nothing():
    if sys.implementation.name != "micropython":
        return
    client = FmqpClient(tls("fmqps"), keepalive_ms=60000)
    count = 0

    def came(view, topic_start, topic_end, start, end):
        nonlocal count
        count += 1

    client.subscribe(b"tls/raw", came, raw=True)
    client.connect(timeout_ms=30000)
    client.publish(b"tls/raw", b"first")
    client.ping(5000)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    for _ in range(100):
        client.publish(b"tls/raw", b"0123456789")
    while count < 101:
        client.poll(1000)
    took = gc.mem_alloc() - before
    gc.enable()
    client.close()
    # Only a message that the end of the buffer cuts costs bytes; check_heap has the exact figures.
    equal(took < 100 * 40, True, "%d B for 100 publications there and back" % took)


run()
