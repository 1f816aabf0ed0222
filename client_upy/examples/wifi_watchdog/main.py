"""A node for places that nobody visits: it rejoins the Wi-Fi, and resets itself if all else fails.

The watchdog resets a board whose program hangs. It is fed only while the broker has been heard of
lately: a radio that lies about its state is reset too.
"""

import time

import config
from machine import WDT

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp
from umotemq.wifi import Wifi

PERIOD_MS = 500


def alive():
    """Called when bytes have come from the broker: nothing else proves the link."""
    global heard
    heard = time.ticks_ms()


heard = time.ticks_ms()
wifi = Wifi(config.SSID, config.PASSWORD)
client = FmqpClient(
    Tcp(config.HOST, config.PORT), link_up=wifi.up, alive=alive, keepalive_ms=config.GIVE_UP_MS // 4
)
watchdog = WDT(timeout=config.WATCHDOG_MS)
while True:
    client.poll(PERIOD_MS)
    if time.ticks_diff(time.ticks_ms(), heard) < config.GIVE_UP_MS:
        watchdog.feed()
    if client.up:
        try:
            client.publish(b"home/" + config.NAME + b"/signal", b"%d" % wifi.wlan.status("rssi"))
        except OSError as error:
            print("not sent:", error)
