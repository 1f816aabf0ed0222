"""Presence: the broker always knows whether this board is there, and tells whoever asks.

Pull the plug, and see "offline", and "online" when it is back:

    motemq sub fmqp://127.0.0.1:8765 'home/*/status' -v
"""

import config

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

client = FmqpClient(Tcp(config.HOST, config.PORT))
status = b"home/" + config.NAME + b"/status"
# Both are kept by the broker, and sent anew whenever the link comes up: the will first, so that
# there is no moment at which the board is online and would not be missed.
client.publish(status, b"offline", retain=True, will=True)
client.publish(status, b"online", retain=True, again=True)
while True:
    client.poll(10000)
