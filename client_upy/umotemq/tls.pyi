from umotemq.tcp import Tcp

class Tls(Tcp):
    def __init__(
        self,
        host: str,
        port: int,
        server_hostname: str | None = None,
        ca: str | bytes | None = None,
        cert: str | bytes | None = None,
        key: str | bytes | None = None,
        verify: bool = True,
    ) -> None: ...
