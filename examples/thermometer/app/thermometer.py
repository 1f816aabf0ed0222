"""Publishes a temperature as often as it is told, whatever becomes of the network."""

import time

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp


def measure():
    """Return the temperature in tenths of a degree Celsius; ask your sensor here."""
    return 215


def degrees(tenths):
    """Return text such as 21.5."""
    sign = "-" if tenths < 0 else ""
    return "%s%d.%d" % (sign, abs(tenths) // 10, abs(tenths) % 10)


class Thermometer:
    """``broker``: HOST:PORT. ``rooms/NAME/period`` sets the milliseconds between two readings."""

    def __init__(self, name, broker):
        host, port = broker.rsplit(":", 1)
        self.topic = "rooms/%s/temperature" % name
        self.period_ms = 1000
        self.client = FmqpClient(Tcp(host, int(port)), retry_ms=100, retry_max_ms=2000)
        self.client.subscribe("rooms/%s/period" % name, self.set_period)
        self.client.publish("rooms/%s/status" % name, "offline", retain=True, will=True)
        self.client.publish("rooms/%s/status" % name, "online", retain=True, again=True)
        self.client.on_up = lambda *_: print("link up")
        self.client.on_down = lambda *_: print("link down")

    def set_period(self, _topic, payload):
        """A message that asks for another period."""
        try:
            self.period_ms = max(10, int(payload))
        except ValueError:
            print("no period:", payload)
            return
        print("every %d ms" % self.period_ms)

    def run(self):
        """Measure and publish, for ever."""
        print("thermometer started")
        due = time.ticks_ms()
        while True:
            self.client.poll(max(0, time.ticks_diff(due, time.ticks_ms())))
            if time.ticks_diff(due, time.ticks_ms()) > 0:
                continue
            due = time.ticks_add(time.ticks_ms(), self.period_ms)
            try:
                self.client.publish(self.topic, degrees(measure()), retain=True)
            except OSError as error:
                print("not sent:", error)
