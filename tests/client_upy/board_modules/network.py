"""Stand-in for a board's module network: an access point that takes its time."""

STA_IF = 0
STAT_CONNECTING = 1
STAT_GOT_IP = 3
_joined = []


class WLAN:
    PM_NONE = 0

    def __init__(self, interface):
        self._looks = 0

    def isconnected(self):
        self._looks += 1
        return self._looks > 3 and _joined == [("attic", "secret")]

    def status(self, what=None):
        return -61 if what == "rssi" else STAT_GOT_IP if _joined else STAT_CONNECTING

    def active(self, on):
        pass

    def config(self, pm):
        print("power save", "off" if pm == self.PM_NONE else "on")

    def disconnect(self):
        _joined.clear()

    def connect(self, ssid, password):
        _joined.append((ssid, password))
