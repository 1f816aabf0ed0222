"""Join the Wi-Fi, before main.py."""

import config

from umotemq.wifi import Wifi

try:
    Wifi(config.SSID, config.PASSWORD).connect(timeout_ms=15000)
except OSError as error:
    print(error)  # main.py goes on trying
