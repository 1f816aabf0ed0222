"""Extensions of vendors (R14): what an installed package brings, and what it does on a connection.

A package adds one by an entry point of the group ``motemq.micromsg2`` (docs/micromsg2.md).
"""

import functools
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from host_broker.installed import RegistryError, installed
from host_broker.protocols.micromsg2.codec import spell_extension
from host_broker.protocols.micromsg2.extensions import (
    ExtensionFault,
    ExtensionSpec,
    Pairs,
    Registry,
    as_said,
)
from host_broker.protocols.micromsg2.grammar import field_fault
from host_broker.protocols.micromsg2.negotiation import Agreement
from host_broker.protocols.micromsg2.refusal import Refusal

GROUP = "motemq.micromsg2"


class ExtensionRefusal(Exception):
    """What the peer wants or has sent cannot be: it is told the text in an ERROR frame (A25)."""


@dataclass(slots=True)
class Message:
    """One whole message, from a client or for one, whatever fragments it came in.

    ``destination``: ``topic/a/b``, or the name of a queue; not to be changed. ``properties``: names
    and texts as on the bus, where ``micromsg2.types`` says which are numbers and dates.
    """

    destination: bytes
    properties: dict[str, bytes]
    payload: bytes


class ExtensionSession:
    """What an extension does on one connection; a class that names this one as its base defines
    what it has something to do for.

    Any method may raise ``ExtensionRefusal``. Whatever else is raised ends this connection, too,
    and is logged.
    """

    def received(self, payload: bytes) -> Sequence[bytes]:
        """Take a frame of this extension; returns the payloads of those to answer with."""
        return ()

    def incoming(self, message: Message) -> None:
        """Change a message that the client sends, before it is published; with several extensions
        the one of the highest index comes first."""

    def outgoing(self, message: Message) -> Sequence[bytes]:
        """Change a message for the client before it is cut and sent; returns the payloads of frames
        to be sent just before it. With several extensions the one of index 1 comes first."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorExtension:
    """One extension.

    ``name`` begins with ``x-``; ``aliases`` are other names that clients call it by. ``open``
    begins it on a connection, with the properties of the client's last word.
    ``policy``: the broker takes it where a client asks for it, suggests it to all, or talks to
    nobody who lacks it. ``properties``: what the broker says of it. ``agree`` is told the
    properties that the client says and those, and returns what holds; it may be asked several
    times, also with () for the second.
    """

    name: str
    open: Callable[[Pairs], ExtensionSession]
    aliases: tuple[str, ...] = ()
    policy: Literal["accepted", "suggested", "required"] = "accepted"
    properties: Pairs = ()
    agree: Callable[[Pairs, Pairs], Pairs] = as_said

    @property
    def spec(self) -> ExtensionSpec:
        """What the handshake knows of it."""

        def agree(theirs: Pairs, ours: Pairs) -> Pairs:
            agreed: Any = _guarded(self.name, "agree", self.agree, theirs, ours)
            if isinstance(agreed, Refusal):
                raise ExtensionFault(agreed.reason)
            if not _are_pairs(agreed):
                raise ExtensionFailed(self.name, "agree", TypeError(f"it returned {agreed!r}"))
            return tuple(agreed)

        return ExtensionSpec(name=self.name, aliases=self.aliases, has_frames=True, agree=agree)


class ExtensionFailed(Exception):
    """Code of an extension has raised what it must not; the text is for the log."""

    def __init__(self, name: str, where: str, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        line = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        why = " ".join(f"{type(error).__name__}: {error}".split())
        super().__init__(f"the extension {name} failed in {where}{line}: {why}")
        self.name = name


class OpenExtensions:
    """The vendors' extensions of one connection, by index (R10).

    Every call raises ``ExtensionFailed`` if an extension does what it must not.
    """

    def __init__(self) -> None:
        self._opened: dict[int, tuple[str, ExtensionSession]] = {}
        self.change_incoming = False  # messages are to be shown to ``incoming``
        self.change_outgoing = False

    def open(self, agreement: Agreement, vendors: Iterable[VendorExtension]) -> Refusal | None:
        """Begin those that were agreed on."""
        by_name = {vendor.name: vendor for vendor in vendors}
        for index, extension in enumerate(agreement.extensions, 1):
            vendor = by_name.get(extension.name)
            if vendor is None:
                continue
            opened = _guarded(vendor.name, "open", vendor.open, extension.properties)
            if isinstance(opened, Refusal):
                return opened
            if not isinstance(opened, ExtensionSession):
                wrong = TypeError(f"it returned {opened!r}, which is no ExtensionSession")
                raise ExtensionFailed(vendor.name, "open", wrong)
            self._opened[index] = vendor.name, opened
            kind = type(opened)
            self.change_incoming |= kind.incoming is not ExtensionSession.incoming
            self.change_outgoing |= kind.outgoing is not ExtensionSession.outgoing
        return None

    def received(self, index: int, payload: bytes) -> bytes | Refusal:
        """Hand a frame to the extension of an index; returns the frames that answer it."""
        found = self._opened.get(index)
        if found is None:
            return b""
        name, session = found
        said = _guarded(name, "received", session.received, payload)
        return said if isinstance(said, Refusal) else _frames(name, "received", index, said)

    def incoming(self, message: Message) -> Refusal | None:
        """Have a client's message changed."""
        for name, session in reversed(self._opened.values()):
            refusal = _guarded(name, "incoming", session.incoming, message)
            if isinstance(refusal, Refusal):
                return refusal
            _require_message(name, "incoming", message)
        return None

    def outgoing(self, message: Message) -> bytes | Refusal:
        """Have a message for the client changed; returns the frames that go before it."""
        frames = b""
        for index, (name, session) in self._opened.items():
            said = _guarded(name, "outgoing", session.outgoing, message)
            if isinstance(said, Refusal):
                return said
            _require_message(name, "outgoing", message)
            frames += _frames(name, "outgoing", index, said)
        return frames


@functools.cache
def installed_extensions() -> tuple[VendorExtension, ...]:
    """Return the extensions of installed packages.

    ``RegistryError`` for one that cannot be loaded, is anything else, or has a name that is not a
    vendor's or is taken.
    """
    found: list[VendorExtension] = []
    for whose, vendor in installed(GROUP, VendorExtension, "MicroMsg2 extension"):
        found.append(vendor)
        try:
            registry_of(found)
        except ValueError as error:
            raise RegistryError(f"{whose} cannot be used: {error}") from error
    return tuple(found)


def registry_of(vendors: Iterable[VendorExtension]) -> Registry:
    """Return the document's extensions with those of vendors; ValueError says which cannot be."""
    vendors = list(vendors)
    for vendor in vendors:
        if not _are_pairs(vendor.properties):
            reason = "are not pairs of a name and a text each"
            raise ValueError(f"the properties of the extension {vendor.name!r} {reason}")
    return Registry(vendor.spec for vendor in vendors)


def _guarded(name: str, where: str, call: Callable[..., Any], *arguments: object) -> Any:
    """Return what code of an extension returns, whatever that is, or the refusal that it raises."""
    try:
        return call(*arguments)
    except ExtensionRefusal as refusal:
        return Refusal(name, str(refusal) or f"refused by {name}")
    except Exception as error:
        raise ExtensionFailed(name, where, error) from error


def _frames(name: str, where: str, index: int, said: Any) -> bytes:
    payloads = () if said is None else said
    is_sequence = isinstance(payloads, Sequence) and not isinstance(payloads, bytes)
    if not is_sequence or not all(isinstance(each, bytes) for each in payloads):
        wrong = TypeError("it must return a sequence of payloads, each of them bytes")
        raise ExtensionFailed(name, where, wrong)
    return b"".join(spell_extension(index, payload) for payload in payloads)


def _require_message(name: str, where: str, message: Message) -> None:
    """Fail if what an extension has made of a message is none."""
    payload: Any = message.payload
    properties: Any = message.properties
    if not isinstance(payload, bytes):
        wrong = f"the payload is a {type(payload).__name__}, not bytes"
    elif not isinstance(properties, dict) or not all(
        isinstance(key, str) and isinstance(value, bytes) for key, value in properties.items()
    ):
        wrong = "the properties are not a dictionary of str to bytes"
    else:
        return
    raise ExtensionFailed(name, where, TypeError(wrong))


def _are_pairs(pairs: object) -> bool:
    return isinstance(pairs, tuple) and all(
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(text, str) for text in pair)
        and not field_fault(pair[0].lower().replace("_", "-"))
        for pair in pairs
    )
