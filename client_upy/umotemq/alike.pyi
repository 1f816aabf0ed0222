from umotemq.fmqp import FmqpClient, _RawHandler

class Alike:
    def __init__(
        self, client: FmqpClient, start: int, body: int, end: int, handler: _RawHandler
    ) -> None: ...
    def take(self, client: FmqpClient) -> int: ...
