"""The extension ``dotnet``: the type of what the next messages carry."""

from host_broker.protocols.micromsg2.refusal import Refusal

TYPE = "dotnet.type"  # a property on the bus
MAX_TYPE = 4096  # bytes of an assembly-qualified name


class TypeOfMessages:
    """What the peer has said last: it holds for its next message (R33), and for those after it that
    have none of their own (R34)."""

    def __init__(self) -> None:
        self.name = b""  # "" before the first

    def said(self, payload: bytes) -> Refusal | None:
        """Take an extension frame."""
        if len(payload) > MAX_TYPE:
            return Refusal("R33", f"a type of {len(payload)} bytes; at most {MAX_TYPE} are allowed")
        self.name = payload
        return None

    def properties(self) -> dict[str, bytes]:
        """Return what the bus is told with a message that comes now."""
        return {TYPE: self.name} if self.name else {}
