# The `network` module of the virtual ESP32: a fake. There is no radio: the sockets are the host's,
# and "joining" any network succeeds at once and gives the host's loopback address.

import sys

STA_IF = 0
AP_IF = 1
AUTH_OPEN = 0
AUTH_WPA2_PSK = 3
STAT_IDLE = 1000
STAT_CONNECTING = 1001
STAT_GOT_IP = 1010
STAT_BEACON_TIMEOUT = 200
STAT_NO_AP_FOUND = 201
STAT_WRONG_PASSWORD = 202
STAT_ASSOC_FAIL = 203
STAT_HANDSHAKE_TIMEOUT = 204

_ADDRESS = "127.0.0.1"
_MASK = "255.0.0.0"

_mac = b""


def install(mac):
    """Be what `import network` gives, with this MAC address."""
    global _mac
    _mac = mac
    sys.modules["network"] = sys.modules[__name__]


def hostname(name=None):
    """Return the name; it cannot be set here."""
    return "virtual-esp32"


class WLAN:
    """A fake station interface that is always in range of every network."""

    PM_NONE = 0
    PM_PERFORMANCE = 1
    PM_POWERSAVE = 2

    _one = None

    def __new__(cls, interface=STA_IF):
        if interface != STA_IF:
            raise ValueError("virtual ESP32: only the station interface is there")
        if cls._one is None:
            cls._one = object.__new__(cls)
            cls._one._active = False
            cls._one._ssid = None
        return cls._one

    def active(self, on=None):
        """Return whether the interface is on, or switch it."""
        if on is None:
            return self._active
        self._active = bool(on)
        if not on:
            self._ssid = None
        return None

    def connect(self, ssid=None, key=None, **more):
        """Join: here at once, whatever the key."""
        if not self._active:
            raise OSError("Wifi Not Started")
        self._ssid = ssid

    def disconnect(self):
        """Leave."""
        if not self._active:
            raise OSError("Wifi Not Started")
        self._ssid = None

    def isconnected(self):
        """Return whether connect() was called."""
        return self._ssid is not None

    def status(self, what=None):
        """Return the driver's number, or for "rssi" a signal strength that nobody measured."""
        if what == "rssi":
            return -40
        return STAT_IDLE if self._ssid is None else STAT_GOT_IP

    def ifconfig(self, settings=None):
        """Return the host's loopback address once joined."""
        if self._ssid is None:
            return ("0.0.0.0", "0.0.0.0", "0.0.0.0", "0.0.0.0")
        return (_ADDRESS, _MASK, _ADDRESS, _ADDRESS)

    def ipconfig(self, *names, **settings):
        """Return "addr4", "gw4" or "has_dhcp4"; there is nothing to set."""
        address, mask, gateway, _ = self.ifconfig()
        if names == ("addr4",):
            return (address, mask)
        if names == ("gw4",):
            return gateway
        if names == ("has_dhcp4",):
            return self._ssid is not None
        raise ValueError("virtual ESP32: unknown setting")

    def config(self, *names, **settings):
        """Return "mac", "essid"/"ssid" or "hostname"; take and forget every setting."""
        if not names:
            return None
        known = {"mac": _mac, "essid": self._ssid, "ssid": self._ssid, "hostname": hostname()}
        if names[0] not in known:
            raise ValueError("unknown config param")
        return known[names[0]]

    def scan(self):
        """Return no networks: there is no radio."""
        return []
