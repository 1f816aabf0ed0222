"""A board on the lab's Wi-Fi: ``/boot.py`` joins it at every start, until the run is over.

The password is read from the environment variable that ``rig.toml`` names, goes into a file that
only we may read, from there onto the board, and is in no argument, log or result.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boards.errors import RigError
from boards.repl import Repl
from boards.runtime_folder import write_private

JOIN_S = 20  # an access point in the next room needs three
_DEADLINE_S = JOIN_S + 10.0

_BOOT = f"""\
# Written by motemq rig: joins the Wi-Fi of /wifi.json.
def _join():
    import json, network, time
    try:
        file = open("/wifi.json")
    except OSError:
        return
    with file:
        wifi = json.load(file)
    station = network.WLAN(network.STA_IF)
    station.active(True)
    if not station.isconnected():
        station.connect(wifi["ssid"], wifi["psk"])
        until = time.ticks_add(time.ticks_ms(), {JOIN_S * 1000})
        while not station.isconnected() and time.ticks_diff(until, time.ticks_ms()) > 0:
            time.sleep_ms(100)
    print("wifi:", station.ifconfig()[0] if station.isconnected() else "not joined")
_join()
"""
_JOINED = "print(__import__('network').WLAN(__import__('network').STA_IF).isconnected())"


class WifiError(RigError):
    """The board cannot be brought onto the Wi-Fi; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Wifi:
    """Which network, and the name of the environment variable with its password."""

    ssid: str
    psk_env: str

    def psk(self) -> str:
        """Return the password, "" for an open network. Raises ``WifiError`` if it is not set."""
        if not self.psk_env:
            return ""
        if self.psk_env not in os.environ:
            raise WifiError(
                f"the password of Wi-Fi {self.ssid!r} is wanted in the environment variable "
                f"{self.psk_env}, which is not set"
            )
        return os.environ[self.psk_env]


@contextmanager
def wifi_files(wifi: Wifi, folder: Path) -> Iterator[list[Path]]:
    """Write what goes onto the board, ``boot.py`` last, for as long as the block lasts.

    Raises ``WifiError``.
    """
    boot, secret = folder / "boot.py", folder / "wifi.json"
    text = json.dumps({"ssid": wifi.ssid, "psk": wifi.psk()})
    boot.write_text(_BOOT)
    try:
        write_private(secret, text.encode())
        yield [secret, boot]
    finally:
        secret.unlink(missing_ok=True)


def join(repl: Repl, wifi: Wifi) -> None:
    """Let a board that has the files join now. Raises ``WifiError``, ``RemoteError``."""
    said = repl.exec(
        f"exec(open('/boot.py').read())\n{_JOINED}", deadline_s=_DEADLINE_S
    ).splitlines()
    if said[-1:] != ["True"]:
        raise WifiError(
            f"it did not join Wi-Fi {wifi.ssid!r} within {JOIN_S} s: is the network there, on "
            "2.4 GHz, and the password right?"
        )
