"""FMQP as the requirements say it: no tries, no routes, no batches, no code of the broker.

A delivery is a list of blocks; the packets of a block come in any order (R21 gives none).
"""

Block = list[bytes]
Subscription = tuple[str, bool]  # topic, in the feedback system


def _equivalent(one: str, other: str) -> bool:
    ones, others = one.split("/"), other.split("/")
    return len(ones) == len(others) and all(
        a == b or "*" in (a, b) for a, b in zip(ones, others, strict=True)
    )


def _packet(flags: int, topic: str, body: bytes) -> bytes:
    raw = topic.encode()
    return bytes([flags, len(raw)]) + len(body).to_bytes(4, "big") + raw + body


class _Client:
    def __init__(self) -> None:
        self.unread = b""
        self.deaf = False  # after a length that nobody can mean
        self.subscribed: dict[Subscription, bool] = {}  # to whether it is loud
        self.wills: list[tuple[int, str, bytes]] = []
        self.got: list[Block] = []


class NaiveBroker:
    """One broker; signals are off, and there are no limits but those of bodies (A11)."""

    def __init__(self, max_body: int, hard_body_limit: int) -> None:
        self._max_body = max_body
        self._hard_body_limit = hard_body_limit
        self._clients: dict[int, _Client] = {}
        self._cache: dict[Subscription, bytes] = {}

    def opened(self, name: int) -> None:
        self._clients[name] = _Client()
        self._count_clients()

    def received(self, name: int, data: bytes) -> None:
        client = self._clients[name]
        client.unread += data
        while len(client.unread) >= 6 and not client.deaf:
            flags, topic_length = client.unread[:2]
            body_length = int.from_bytes(client.unread[2:6], "big")
            length = 6 + topic_length + body_length
            if body_length > self._hard_body_limit:
                client.deaf = True
                self._leave(client)
                return
            if len(client.unread) < length:
                return
            packet, client.unread = client.unread[:length], client.unread[length:]
            self._packet(client, flags, packet[6 : 6 + topic_length], packet[6 + topic_length :])

    def closed(self, name: int) -> None:
        client = self._clients.pop(name)
        self._leave(client)
        for flags, topic, body in client.wills:
            self._publish(flags, topic, body)
        self._count_clients()

    def got(self, name: int) -> list[Block]:
        client = self._clients[name]
        blocks, client.got = client.got, []
        return blocks

    def _packet(self, client: _Client, flags: int, raw: bytes, body: bytes) -> None:
        try:
            topic = raw.decode().strip("/")  # R5, R8
        except UnicodeDecodeError:
            return
        if not topic or "\0" in topic or len(body) > self._max_body:  # R7, R9, A11
            return
        feedback = bool(flags & 0x20)
        if flags & 0xC0 == 0xC0:
            self._unsubscribe(client, topic, feedback)
        elif flags & 0x80:
            self._subscribe(client, topic, feedback, loud=not flags & 0x10)
        elif flags & 0x28 == 0x08:
            client.wills.append((flags & 0x0C, topic, body))  # R24
        elif not feedback:  # R44
            self._publish(flags & 0x04, topic, body)

    def _leave(self, client: _Client) -> None:
        # A18. All at once: feedback about one topic is not for the gone.
        gone, client.subscribed = client.subscribed, {}
        for (topic, feedback), loud in gone.items():
            if loud and not feedback:
                self._announce(topic)

    def _subscribe(self, client: _Client, topic: str, feedback: bool, loud: bool) -> None:
        wanted = (topic, feedback)
        client.subscribed[wanted] = loud or client.subscribed.get(wanted, False)
        if loud and not feedback:
            self._announce(topic)
        kept = [
            packet
            for (other, system), packet in self._cache.items()
            if system == feedback and _equivalent(other, topic)
        ]
        client.got.append(kept)  # R21

    def _unsubscribe(self, client: _Client, topic: str, feedback: bool) -> None:
        if client.subscribed.pop((topic, feedback), False) and not feedback:
            self._announce(topic)

    def _announce(self, topic: str) -> None:
        """R45 to R47, A4."""
        loud = sum(client.subscribed.get((topic, False), False) for client in self._all())
        packet = _packet(0x24, topic, loud.to_bytes(8, "big") if loud else b"")
        self._cache[topic, True] = packet
        self._deliver(topic, packet, feedback=True)

    def _publish(self, flags: int, topic: str, body: bytes, own: bool = False) -> None:
        if topic.split("/")[0] == "$" and not own:
            return  # R30
        packet = _packet(flags, topic, body)
        if flags & 0x04:
            self._cache.pop((topic, False), None)
            if body:
                self._cache[topic, False] = packet  # R20, R22
        if body:  # R18
            self._deliver(topic, packet, feedback=False)

    def _deliver(self, topic: str, packet: bytes, feedback: bool) -> None:
        for client in self._all():
            if any(
                system == feedback and _equivalent(topic, wanted)
                for wanted, system in client.subscribed
            ):
                client.got.append([packet])  # R14, R15

    def _count_clients(self) -> None:
        self._publish(0x04, "$/info/clients", len(self._clients).to_bytes(8, "big"), own=True)

    def _all(self) -> list[_Client]:
        return list(self._clients.values())
