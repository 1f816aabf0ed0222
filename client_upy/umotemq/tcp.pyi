from umotemq.link import _Stream

class Tcp:
    where: str
    nodelay: bool
    def __init__(self, host: str, port: int) -> None: ...
    def open(self) -> _Stream: ...
