# The `network` module of the virtual ESP32: a fake of the driver, not of the network. The board's
# supervisor (boards/virtual/esp32/radio.py) joins for it: on a LAN the access point that is there,
# with its name and password; without one any name, and then the sockets are the host's own.

import json
import select
import sys

from vesp32_machine import Line

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

_STATUS = {
    "idle": STAT_IDLE,
    "connecting": STAT_CONNECTING,
    "up": STAT_GOT_IP,
    "no-network": STAT_NO_AP_FOUND,
    "wrong-key": STAT_WRONG_PASSWORD,
    "lost": STAT_BEACON_TIMEOUT,
}

_mac = b""
_line = None
_heard = b""
_number = 0


def install(mac, radio):
    """Be what `import network` gives, with this MAC address and a descriptor to the radio."""
    global _mac, _line
    _mac = mac
    _line = Line(radio)
    sys.modules["network"] = sys.modules[__name__]


def _ask(what, **more):
    # Ask the radio, and return its state. Answers to questions that Ctrl-C cut off are passed over.
    global _heard, _number
    _number += 1
    more["n"] = _number
    more["do"] = what
    _line.send(json.dumps(more) + "\n")
    while True:
        end = _heard.find(b"\n")
        if end < 0:
            _line.wait(select.POLLIN)
            _heard += _line.file.read(512) or b""
            continue
        answer = json.loads(_heard[:end])
        _heard = _heard[end + 1 :]
        if answer["n"] == _number:
            return answer


def hostname(name=None):
    """Return the name; it cannot be set here."""
    return "virtual-esp32"


class WLAN:
    """The station interface."""

    PM_NONE = 0
    PM_PERFORMANCE = 1
    PM_POWERSAVE = 2

    _one = None

    def __new__(cls, interface=STA_IF):
        if interface != STA_IF:
            raise ValueError("virtual ESP32: only the station interface is there")
        if cls._one is None:
            cls._one = object.__new__(cls)
        return cls._one

    def active(self, on=None):
        """Return whether the interface is on, or switch it."""
        if on is None:
            return _ask("state")["active"]
        _ask("active", on=bool(on))
        return None

    def connect(self, ssid=None, key=None, **more):
        """Begin to join; status() and isconnected() say what comes of it."""
        if not self.active():
            raise OSError("Wifi Not Started")
        _ask("join", ssid=ssid, key=key)

    def disconnect(self):
        """Leave."""
        if not self.active():
            raise OSError("Wifi Not Started")
        _ask("leave")

    def isconnected(self):
        """Return whether a network is joined."""
        return _ask("state")["state"] == "up"

    def status(self, what=None):
        """Return the driver's number, or for "rssi" a signal strength that nobody measured."""
        if what == "rssi":
            return -40
        return _STATUS[_ask("state")["state"]]

    def ifconfig(self, settings=None):
        """Return address, mask, gateway and DNS server; settings are refused."""
        if settings is not None:
            raise ValueError("virtual ESP32: the access point gives the address")
        state = _ask("state")
        return (state["address"], state["mask"], state["gateway"], state["gateway"])

    def ipconfig(self, *names, **settings):
        """Return "addr4", "gw4" or "has_dhcp4"; there is nothing to set."""
        address, mask, gateway, _ = self.ifconfig()
        if names == ("addr4",):
            return (address, mask)
        if names == ("gw4",):
            return gateway
        if names == ("has_dhcp4",):
            return address != "0.0.0.0"
        raise ValueError("virtual ESP32: unknown setting")

    def config(self, *names, **settings):
        """Return "mac", "essid"/"ssid" or "hostname"; take and forget every setting."""
        if not names:
            return None
        if names[0] == "mac":
            return _mac
        if names[0] in ("essid", "ssid"):
            return _ask("state")["ssid"]
        if names[0] in ("hostname", "dhcp_hostname"):
            return hostname()
        raise ValueError("unknown config param")

    def scan(self):
        """Return no networks: nothing is looked for."""
        return []
