"""A client of the line protocol on a desk: says lines, hears lines."""

from typing import Any

from host_broker.registry import protocols
from motemq_line import LINE
from motemq_line.settings import LineSettings
from tests.host_broker.desk import Desk


def line_desk(line: dict[str, Any] | None = None, **more: Any) -> Desk:
    """A desk whose broker speaks the line protocol, too."""
    sections = {LINE.name: LineSettings(**(line or {}))}
    return Desk(specs={**protocols(), LINE.name: LINE}, sections=sections, **more)


class LinePeer:
    """One connection."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.connection = desk.open("line")

    def say(self, *lines: str) -> list[str]:
        """Send lines in one read; returns what came."""
        self.desk.send(self.connection, "".join(f"{line}\n" for line in lines).encode())
        return self.heard()

    def heard(self) -> list[str]:
        """Return the lines that came since the last time."""
        got = self.desk.got(self.connection).decode()
        assert not got or got.endswith("\n")
        return got.splitlines()

    def close(self) -> None:
        """End the connection."""
        self.desk.close(self.connection)

    @property
    def held(self) -> bool:
        """Whether it is read no further."""
        return any(connection == self.connection for connection, _ in self.desk.held)

    @property
    def why_closed(self) -> str:
        """Why the broker asked for the close; "" if it did not."""
        reasons = [c.reason for c in self.desk.closes if c.connection == self.connection]
        return reasons[0] if reasons else ""
