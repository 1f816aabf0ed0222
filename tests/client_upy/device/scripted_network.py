"""A scripted stand-in for the module ``network``: no radio, only what drivers report, and when.

The numbers are those of the ports: ESP32 (ESP-IDF's reasons from 200 on) and RP2 (CYW43's).
"""

import sys
import time

ESP32 = {
    "STAT_IDLE": 1000,
    "STAT_CONNECTING": 1001,
    "STAT_GOT_IP": 1010,
    "STAT_BEACON_TIMEOUT": 200,
    "STAT_NO_AP_FOUND": 201,
    "STAT_WRONG_PASSWORD": 202,
    "STAT_ASSOC_FAIL": 203,
    "STAT_HANDSHAKE_TIMEOUT": 204,
}
RP2 = {
    "STAT_IDLE": 0,
    "STAT_CONNECTING": 1,
    "STAT_GOT_IP": 3,
    "STAT_CONNECT_FAIL": -1,
    "STAT_NO_AP_FOUND": -2,
    "STAT_WRONG_PASSWORD": -3,
}


class ScriptedNetwork:
    """Install it with ``install``; ``tries`` are the scripts of one join after another.

    A script is a list of (ms after connect, name of a status); the last one stays.
    """

    STA_IF = 0

    def __init__(self, numbers, *tries):
        for name in numbers:
            setattr(self, name, numbers[name])
        self._tries = list(tries)
        self._script = None
        self.is_esp32 = numbers is ESP32
        self.calls = []
        self.PM_NONE = 16  # WLAN has it

    def install(self):
        sys.modules["network"] = self

    def WLAN(self, interface):
        return self

    # ---- network.WLAN ----

    def active(self, on=None):
        self.calls.append("active" if on else "inactive")

    def config(self, pm):
        self.calls.append("pm %d" % pm)

    def disconnect(self):
        self.calls.append("disconnect")
        if self._script is None:
            raise OSError("Wifi Not Started")
        self._script = None

    def connect(self, ssid, password):
        if self.is_esp32 and self._script is not None:
            raise OSError("Wifi Internal State Error")
        self.calls.append("connect %s %s" % (ssid, password))
        self._script = self._tries.pop(0) if self._tries else [(0, "STAT_NO_AP_FOUND")]
        self._start = time.ticks_ms()

    def status(self):
        now = "STAT_IDLE"
        for ms, name in self._script or ():
            if time.ticks_diff(time.ticks_ms(), self._start) >= ms:
                now = name
        return getattr(self, now)

    def isconnected(self):
        return self.status() == self.STAT_GOT_IP

    def lose(self):
        """The network is gone."""
        self._script = [(0, "STAT_BEACON_TIMEOUT" if self.is_esp32 else "STAT_CONNECT_FAIL")]
        self._start = time.ticks_ms()
