from umotemq.link import _Stream

TCP_NODELAY: int

class Tcp:
    where: tuple[str, int]
    def __init__(self, host: str, port: int) -> None: ...
    def open(self) -> _Stream: ...
