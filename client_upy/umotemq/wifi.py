"""Wi-Fi for those who want it done: it joins, rejoins, and says why not.

    wifi = Wifi("attic", "secret")
    client = FmqpClient(Tcp("192.168.1.2", 8765), link_up=wifi.up)

The client asks ``wifi.up`` before it opens its link, and that never waits; where nothing may go
on without a network, ``wifi.connect()`` does. Neither needs the other.
"""

from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

# The same names on every port, other numbers; a port may lack some.
_WHY = (
    ("STAT_WRONG_PASSWORD", "wrong password"),
    ("STAT_NO_AP_FOUND", "no such network in range"),
    ("STAT_ASSOC_FAIL", "the access point refused"),
    ("STAT_HANDSHAKE_TIMEOUT", "no handshake: password, or a weak signal"),
    ("STAT_BEACON_TIMEOUT", "the signal was lost"),
    ("STAT_CONNECT_FAIL", "failed"),
    ("STAT_CONNECTING", "no answer, or no address from DHCP"),
)


class WifiError(OSError):
    """No network in time; ``status`` is the driver's number for why."""

    def __init__(self, what, status):
        super().__init__(what)
        self.status = status


class Wifi:
    """One station interface. ``wlan`` is its network.WLAN, for what is not here.

    ``timeout_ms``: a try that takes longer is begun anew. ``power_save``: as the driver has it;
    without, the radio does not sleep between beacons: more current, but no delays of 200 ms and
    no links that die when idle. ``more``: for WLAN.connect, as ``bssid``.
    """

    def __init__(self, ssid, password=None, timeout_ms=15000, power_save=False, **more):
        import network

        self._network = network
        self.wlan = network.WLAN(network.STA_IF)
        self._power_save = power_save
        self._timeout_ms = timeout_ms
        self._login = (ssid, password)
        self._more = more
        self._failed = None  # what the driver raised
        self._until = None  # when the try that is under way has taken too long

    def up(self):
        """Say whether there is a network with an address. Begins to join it if not.

        Never waits, never raises: what is wrong, ``why`` says.
        """
        self._failed = None
        try:
            if self.wlan.isconnected():
                self._until = None
                return True
            now = ticks_ms()
            # A driver may be idle between two of its own tries: only time tells that it gave up.
            if self._until is None or ticks_diff(self._until, now) <= 0:
                self._until = ticks_add(now, self._timeout_ms)
                self._begin()
        except Exception as error:  # OSError, RuntimeError, ValueError: each port has its own
            self._failed = error
        return False

    def connect(self, timeout_ms=15000):
        """Return once there is a network; WifiError says why not, a wrong password at once."""
        self._until = None
        until = ticks_add(ticks_ms(), timeout_ms)
        while not self.up():
            status = self.wlan.status()
            wrong = status == self._status("STAT_WRONG_PASSWORD")
            if wrong or ticks_diff(until, ticks_ms()) <= 0:
                raise WifiError("wifi %s: %s" % (self._login[0], self.why()), status)
            sleep_ms(50)

    def why(self):
        """Return what the driver says of its last try, as text."""
        if self._failed:
            return "driver: %s" % self._failed
        status = self.wlan.status()
        for name, text in _WHY:
            if status == self._status(name):
                return text
        return "status %s" % status

    def disconnect(self):
        """Leave the network and switch the radio off, as before a deep sleep. Never raises."""
        self._until = None
        try:
            self.wlan.disconnect()
            self.wlan.active(False)
        except OSError:
            pass  # it was not on

    def _begin(self):
        wlan = self.wlan
        wlan.active(True)
        try:
            wlan.disconnect()  # an ESP32 that is still at its last try refuses another one
        except Exception:
            pass  # there was nothing to leave
        if not self._power_save and hasattr(wlan, "PM_NONE"):
            wlan.config(pm=wlan.PM_NONE)
        wlan.connect(*self._login, **self._more)

    def _status(self, name):
        return getattr(self._network, name, None)
