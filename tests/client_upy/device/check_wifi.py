"""Joining a Wi-Fi network, with a scripted driver."""

from checks import Memory, check, equal, raises, run, within
from scripted_network import ESP32, RP2, ScriptedNetwork

from umotemq.fmqp import FmqpClient
from umotemq.wifi import Wifi, WifiError

_GOOD = [(0, "STAT_CONNECTING"), (60, "STAT_IDLE"), (80, "STAT_CONNECTING"), (120, "STAT_GOT_IP")]
_SLOW = [(0, "STAT_CONNECTING"), (600, "STAT_GOT_IP")]
_HANGS = [(0, "STAT_CONNECTING")]
_WRONG = [(0, "STAT_CONNECTING"), (80, "STAT_WRONG_PASSWORD")]
_NO_AP = [(0, "STAT_CONNECTING"), (50, "STAT_NO_AP_FOUND")]


def wifi(numbers, *tries, **options):
    driver = ScriptedNetwork(numbers, *tries)
    driver.install()
    return driver, Wifi("attic", "secret", **options)


def for_both(function):
    def esp32():
        function(ESP32)

    def rp2():
        function(RP2)

    check(esp32)
    check(rp2)


@for_both
def joining(numbers):
    # Idle between two tries of the driver is no failure.
    driver, station = wifi(numbers, _GOOD)
    within(110, 1000, station.connect, timeout_ms=5000)
    equal(driver.calls, ["active", "disconnect", "pm 16", "connect attic secret"])
    equal(station.up(), True)
    driver, station = wifi(numbers, _GOOD, power_save=True)
    station.connect(5000)
    equal(driver.calls, ["active", "disconnect", "connect attic secret"])


@for_both
def a_wrong_password_ends_it_early(numbers):
    _, station = wifi(numbers, _WRONG)
    error = within(70, 1000, raises, WifiError, station.connect, timeout_ms=5000)
    equal("attic: wrong password" in str(error), True, str(error))
    equal(error.status, numbers["STAT_WRONG_PASSWORD"])


@for_both
def what_may_come_right_is_waited_for(numbers):
    _, station = wifi(numbers, _NO_AP)
    error = within(290, 1300, raises, WifiError, station.connect, timeout_ms=300)
    equal("no such network in range" in str(error), True, str(error))
    _, station = wifi(numbers, _HANGS)
    error = within(290, 1300, raises, WifiError, station.connect, timeout_ms=300)
    equal("DHCP" in str(error), True, str(error))


@for_both
def a_try_that_hangs_is_begun_anew(numbers):
    driver, station = wifi(numbers, _HANGS, _GOOD, timeout_ms=150)
    within(250, 1500, station.connect, timeout_ms=5000)
    equal(driver.calls.count("connect attic secret"), 2)


@for_both
def up_never_waits_and_never_raises(numbers):
    driver, station = wifi(numbers, _NO_AP, _NO_AP, _GOOD, timeout_ms=2000)

    def looks():
        for _ in range(100):
            equal(station.up(), False)

    within(0, 50, looks)
    equal(driver.calls.count("connect attic secret"), 1)

    def refuses(*_):
        raise OSError("Wifi Internal Error")

    driver, station = wifi(numbers)
    driver.connect = refuses
    equal(station.up(), False)


@for_both
def the_client_asks_before_it_opens_its_link(numbers):
    driver, station = wifi(numbers, _SLOW, [(0, "STAT_GOT_IP")])
    memory = Memory()
    client = FmqpClient(memory, name=b"", link_up=station.up, retry_ms=20)
    client.poll(60)
    equal((memory.opened, client.up), (0, False))
    within(0, 2000, client.connect, timeout_ms=2000)
    equal((memory.opened, client.up), (1, True))
    # It has nothing to say to a lost network: the link tells, and then nothing is opened.
    driver.lose()
    memory.ended = True
    while client.up:
        client.poll(50)
    within(0, 2000, client.connect, timeout_ms=2000)
    equal(driver.calls.count("connect attic secret"), 2)
    equal(memory.opened, 2)
    client.close()


@for_both
def before_a_deep_sleep(numbers):
    driver, station = wifi(numbers, _GOOD)
    station.connect(5000)
    station.disconnect()
    equal(driver.calls[-2:], ["disconnect", "inactive"])
    station.disconnect()


@for_both
def whatever_a_driver_raises_up_does_not(numbers):
    for name in ("isconnected", "active", "config", "connect", "disconnect"):
        for error in (OSError(5), RuntimeError("Wifi Unknown Error 0x0101"), ValueError("ssid")):
            _, station = wifi(numbers, _GOOD, _GOOD, _GOOD, _GOOD)
            real = getattr(station.wlan, name)

            def broken(*_, error=error, **__):
                raise error

            setattr(station.wlan, name, broken)
            equal(station.up(), False)
            if name != "disconnect":
                equal("driver: " in station.why(), True, station.why())
                raises(WifiError, station.connect, timeout_ms=1)
            setattr(station.wlan, name, real)
            station.connect(timeout_ms=5000)
            equal(station.up(), True)


run()
