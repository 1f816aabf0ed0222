"""A MicroMsg2 client of a desk: says frames, hears events."""

from typing import Any

from host_broker.access import access
from host_broker.protocols.micromsg2 import MICROMSG2
from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import (
    ErrorFrame,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.negotiation import Agreement, Offer, choose, request
from host_broker.protocols.micromsg2.refusal import Refusal
from host_broker.protocols.micromsg2.settings import MicroMsg2Settings
from host_broker.protocols.micromsg2.windows import read_ack, spell_ack
from tests.host_broker.desk import Desk


def micromsg2_desk(micromsg2: dict[str, Any] | None = None, **more: Any) -> Desk:
    """A desk whose broker speaks MicroMsg2, too."""
    sections = {MICROMSG2.name: MicroMsg2Settings(**(micromsg2 or {}))}
    return Desk(sections=sections, **more)


class Peer:
    """One connection; ``required``: the extensions that it asks for, as they are said."""

    def __init__(
        self,
        desk: Desk,
        required: str = "pubsub",
        identity: str = "board",
        peer: access.Peer | None = None,
    ) -> None:
        self.desk = desk
        self.codec = Codec("client")
        self.connection = desk.open("micromsg2", peer=peer)
        offer = Offer(identity, read_extensions(required.encode()))
        (answer,) = self.say(spell_handshake(request(offer)))
        assert isinstance(answer, Handshake), answer
        chosen = choose(offer, answer)
        assert not isinstance(chosen, Refusal), chosen
        final, self.agreement = chosen
        assert isinstance(self.agreement, Agreement)
        assert self.say(spell_handshake(final)) == []
        self.sequence = 0

    def say(self, data: bytes) -> list[Any]:
        """Send bytes and return the events that came."""
        self.desk.send(self.connection, data)
        return self.heard()

    def heard(self) -> list[Any]:
        """Return the events that came since the last time."""
        return list(self.codec.receive_data(self.desk.got(self.connection)))

    def subscribe(self, destination: str, *filters: str, verb: str = "subscribe") -> list[Any]:
        """Say SUBSCRIBE, or another command with the same arguments."""
        arguments = [("destination", destination), *(("filter", text) for text in filters)]
        encoded = [(key, value.encode()) for key, value in arguments]
        return self.say(spell_command_frame(verb, encoded))

    def publish(self, destination: str, payload: bytes, properties: str = "") -> list[Any]:
        """Say SEND, with the next number."""
        return self.say(self.spell(destination, payload, properties))

    def spell(
        self, destination: str, payload: bytes, properties: str = "", continued: bool = False
    ) -> bytes:
        """Spell SEND, with the next number."""
        self.sequence = self.sequence % 65535 + 1
        return spell_message(
            self.sequence, destination.encode(), properties.encode(), payload, continued
        )

    def acknowledge(self, number: int) -> list[Any]:
        """Say an ack."""
        assert self.agreement.acks is not None
        return self.say(spell_extension(self.agreement.acks.index, spell_ack(number)))

    def acked(self, events: list[Any]) -> list[int]:
        """The numbers of acks, which all of the events must be."""
        assert self.agreement.acks is not None
        index = self.agreement.acks.index
        assert all(type(each) is ExtensionFrame and each.index == index for each in events), events
        return [read_ack(each.payload) for each in events]

    def close(self) -> None:
        """End the connection."""
        self.desk.close(self.connection)

    @property
    def why_closed(self) -> str:
        """Why the broker asked for the close; "" if it did not."""
        reasons = [c.reason for c in self.desk.closes if c.connection == self.connection]
        assert len(reasons) < 2
        return reasons[0] if reasons else ""


def told(events: list[Any]) -> list[tuple[int, str, str, bytes]]:
    """Number, destination, properties and payload of messages, which all of the events must be."""
    assert all(type(event) is MessageFrame for event in events), events
    return [
        (each.sequence, each.destination.decode(), each.properties.decode(), each.payload)
        for each in events
    ]


def payloads(events: list[Any]) -> list[bytes]:
    """What messages carry, which all of the events must be."""
    return [payload for _, _, _, payload in told(events)]


def refused(peer: Peer, events: list[Any]) -> str:
    """The rule for which a peer was told ERROR and disconnected, and nothing else."""
    (error,) = events
    assert isinstance(error, ErrorFrame)
    rule, _, reason = peer.why_closed.partition(": ")
    assert reason == error.reason
    return rule
