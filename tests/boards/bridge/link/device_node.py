"""A board on a reliable link: says how often it was told, and counts. Arguments: the line's TCP
port, and the patience in ms. Runs on MicroPython.
"""

import sys

from umotemq.fmqp import FmqpClient
from umotemq.reliable import Reliable
from umotemq.tcp import Tcp

client = FmqpClient(
    Reliable(Tcp("127.0.0.1", int(sys.argv[1])), int(sys.argv[2])), retry_ms=100, retry_max_ms=200
)
told = 0


def count(topic, payload):
    global told
    if int(payload) != told:
        raise SystemExit("told " + str(payload) + " after " + str(told))
    told += 1


client.subscribe(b"board/tell", count)
client.publish(b"board/status", b"gone", will=True)
client.publish(b"board/status", b"here", again=True)
said = 0
while True:
    client.poll(5)
    if client.up and said < 300:
        client.publish(b"board/said", b"%d %s" % (said, b"x" * (said % 90)))
        said += 1
    if told == 300:
        client.publish(b"board/told", b"300")
        told = 0
