from typing import Any

class WifiError(OSError):
    status: int
    def __init__(self, what: str, status: int) -> None: ...

class Wifi:
    wlan: Any
    def __init__(
        self,
        ssid: str,
        password: str | None = None,
        timeout_ms: int = 15000,
        power_save: bool = False,
        **more: Any,
    ) -> None: ...
    def up(self) -> bool: ...
    def connect(self, timeout_ms: int = 15000) -> None: ...
    def why(self) -> str: ...
    def disconnect(self) -> None: ...
