"""Encrypted, and sure whom it talks to: FMQP by TLS.

Put the certificate of whoever signed the broker's beside this, as ca.pem. Certificates are judged
by the board's clock, so that is set first.

    motemq broker --listen 'auto://127.0.0.1:8765?cert=broker.pem&key=broker.key'
    motemq sub 'fmqps://127.0.0.1:8765?ca=ca.pem' 'home/*/uptime' -v
"""

import time

import config

from umotemq.fmqp import FmqpClient
from umotemq.tls import Tls


def set_clock():
    try:
        import ntptime
    except ImportError:
        return  # a computer that has the time
    while True:
        try:
            return ntptime.settime()
        except OSError as error:
            print("no time yet:", error)
            time.sleep_ms(2000)


set_clock()
# If the broker wants to know who we are: cert="kitchen.pem", key="kitchen.key".
client = FmqpClient(Tls(config.HOST, config.TLS_PORT, ca="ca.pem"), timeout_ms=10000)
while True:
    client.poll(1000)
    try:
        client.publish(b"home/" + config.NAME + b"/uptime", b"%d" % (time.ticks_ms() // 1000))
    except OSError as error:
        print("not sent:", error)
