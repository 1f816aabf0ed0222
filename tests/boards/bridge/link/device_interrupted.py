"""A board at whose REPL somebody presses Ctrl-C, again and again: each life of its one link says
its number, then talks until it is interrupted. Arguments: the TCP port of the line, and the
patience in ms. Runs on MicroPython.
"""

import sys

from umotemq.fmqp import FmqpClient
from umotemq.reliable import Reliable
from umotemq.tcp import Tcp

transport = Reliable(Tcp("127.0.0.1", int(sys.argv[1])), int(sys.argv[2]))
life = 0
while True:
    client = FmqpClient(transport, retry_ms=100, retry_max_ms=200)
    try:
        client.publish(b"board/life", b"%d" % life, again=True)
        while True:
            client.poll(1)
            if client.up:
                client.publish(b"board/said", b"x" * 90)
    except KeyboardInterrupt:
        client.close()
        life += 1
