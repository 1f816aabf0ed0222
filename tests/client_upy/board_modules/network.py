"""Stand-in for a board's module network: an access point that takes its time."""

STA_IF = 0
STAT_CONNECTING = 1
STAT_GOT_IP = 3
# There is one radio, however many objects stand for it.
_joined = []
_looks = []


class WLAN:
    PM_NONE = 0

    def __init__(self, interface):
        pass

    def isconnected(self):
        _looks.append(1)
        return len(_looks) > 3 and _joined == [("attic", "secret")]

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
