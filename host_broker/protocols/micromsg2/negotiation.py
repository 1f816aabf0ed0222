"""The handshake: three messages, after which both sides know what holds, or one has said ERROR.

``request`` is what a client says first, ``reply`` a server's answer, ``choose`` the client's last
word, ``conclude`` what the server makes of it. All are pure; who gets a ``Refusal`` sends its text
as an ERROR frame and closes (R5 to R7, A25).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from host_broker.protocols.micromsg2.events import Extension, Handshake
from host_broker.protocols.micromsg2.extensions import (
    ACK,
    BATCH_ACK,
    DEFAULT_WINDOW,
    ExtensionFault,
    ExtensionSpec,
    Registry,
    ack_expire_s,
    per_ack,
    window,
)
from host_broker.protocols.micromsg2.refusal import Refusal

VERSION = (1, 0)  # R3
SHARPMESSAGING = (1, 1)  # the version that it says
MAX_EXTENSIONS = 255  # of one connection: their index is one byte

_SHOWN = 60  # characters of a peer's text in a reason


@dataclass(frozen=True, slots=True)
class Offer:
    """What one side wants, with its properties.

    ``required``: the peer must have them. ``optional``: it suggests them. ``accepted``: it has
    them, and takes them when the peer requires or suggests them. ``registry`` has the code for all
    three; one that it does not have is taken with the properties that the peer says.
    """

    identity: str
    required: tuple[Extension, ...] = ()
    optional: tuple[Extension, ...] = ()
    accepted: tuple[Extension, ...] = ()
    version: tuple[int, int] = VERSION
    registry: Registry = field(default_factory=Registry)

    def find(self, name: str) -> Extension | None:
        """Return our side of the extension that a peer calls so, None if we have none."""
        name = self.canonical(name)
        for each in (*self.required, *self.optional, *self.accepted):
            if self.canonical(each.name) == name:
                return each
        return None

    def canonical(self, name: str) -> str:
        """Return the one name of an extension."""
        spec = self.registry.get(name)
        return name if spec is None else spec.name


@dataclass(frozen=True, slots=True)
class Acks:
    """What is agreed about acks: the extension's index, how many messages may be without one, and
    after how many seconds the peer takes one for lost, if it says so.

    ``per_ack``: the peer is SharpMessaging, which awaits one ack for so many messages, and says all
    that is outstanding again when it hears an earlier one (A31).
    """

    index: int
    window: int
    expire_s: float | None = None
    per_ack: int | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """What holds for a connection: the version, who the peer says it is, and the extensions under
    their own names, in the order of the final message, which is that of their indexes (R10)."""

    version: tuple[int, int]
    identity: str
    extensions: tuple[Extension, ...]
    specs: tuple[ExtensionSpec, ...] = field(repr=False, compare=False)

    def index(self, name: str) -> int | None:
        """Return the index of an extension, from 1; None if it was not agreed on."""
        for index, extension in enumerate(self.extensions, 1):
            if extension.name == name:
                return index
        return None

    def at(self, index: int) -> ExtensionSpec | None:
        """Return the extension of an index; None if there is none, which is an ERROR (A27)."""
        return self.specs[index - 1] if 1 <= index <= len(self.specs) else None

    @property
    def acks(self) -> Acks | None:
        """What is agreed about acks, None without them (R25); ``batch-ack`` decides (A16)."""
        for name in (BATCH_ACK, ACK):
            index = self.index(name)
            if index is not None:
                said = self.extensions[index - 1].properties
                batch = (window(said) or DEFAULT_WINDOW) if name == BATCH_ACK else 1
                return Acks(index, batch, ack_expire_s(said), per_ack(said))
        return None


def request(offer: Offer) -> Handshake:
    """Return what a client says first (R1)."""
    return _message(offer, offer.version, offer.required, offer.optional)


def reply(offer: Offer, request: Handshake) -> Handshake | Refusal:
    """Return a server's answer: what it requires itself, and what it suggests, which is what the
    client suggests and it has, and what it suggests by itself. To a client of 1.1, which is
    SharpMessaging, also what that requires: it fails without (A29)."""
    version = _version(offer, request)
    if isinstance(version, Refusal):
        return version
    taken = _Taken(offer)
    for theirs in request.required:
        if refusal := taken.require(theirs, "R6"):
            return refusal
    required = [each for each in offer.required if taken.add(each)]
    if (request.major, request.minor) == SHARPMESSAGING:
        required += filter(None, map(taken.agreed, request.required))
    suggested = [
        each for each in map(taken.agreed, request.optional) if each is not None and taken.add(each)
    ]
    suggested += [each for each in offer.optional if taken.add(each)]
    return _message(offer, version, required, taken.one_of_acks(suggested))


def choose(offer: Offer, reply: Handshake) -> tuple[Handshake, Agreement] | Refusal:
    """Return a client's last word and what holds: what either side requires, and what both of them
    want (R9). A server of 1.1, SharpMessaging, suggests whatever it hears: of that nothing."""
    version = _agreed_version(offer, reply)
    if isinstance(version, Refusal):
        return version
    taken = _Taken(offer)
    said_by_server = {offer.canonical(each.name): each for each in _all(reply)}
    required = []
    for ours in offer.required:
        # A29: the server may have repeated it, with properties of its own.
        theirs = said_by_server.get(offer.canonical(ours.name))
        agreed = taken.agreed(theirs) if theirs is not None and theirs.properties else ours
        if agreed is None:
            return _unusable(taken.fault, ours, "R7")
        if taken.add(agreed):
            required.append(Extension(ours.name, agreed.properties))
    for theirs in reply.required:
        if offer.canonical(theirs.name) in taken.names:
            continue
        if refusal := taken.require(theirs, "R7"):
            return refusal
        required.append(taken.agreed(theirs) or theirs)
    suggested = () if (reply.major, reply.minor) == SHARPMESSAGING else reply.optional
    optional = [
        each for each in map(taken.agreed, suggested) if each is not None and taken.add(each)
    ]
    final = _message(offer, version, required, taken.one_of_acks(optional))
    agreement = _agreement(offer, version, reply.identity, final)
    return agreement if isinstance(agreement, Refusal) else (final, agreement)


def conclude(offer: Offer, request: Handshake, final: Handshake) -> Agreement | Refusal:
    """Return what a server makes of a client's last word."""
    version = _agreed_version(offer, final)
    if isinstance(version, Refusal):
        return version
    if final.identity != request.identity:
        reason = f"it was {request.identity[:_SHOWN]!r} and now is {final.identity[:_SHOWN]!r}"
        return Refusal("R9", f"the client must repeat its identity; {reason}")
    chosen = {offer.canonical(each.name) for each in _all(final)}
    for ours in offer.required:
        if offer.canonical(ours.name) not in chosen:
            return Refusal("R7", f"this server requires the extension {ours.name!r}")
    return _agreement(offer, version, final.identity, final)


class _Taken:
    """Extensions that one message has so far."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self.names: set[str] = set()
        self.fault = ""  # why the last one cannot be agreed on

    def add(self, extension: Extension) -> bool:
        """Note an extension; False if it is there already."""
        name = self._offer.canonical(extension.name)
        new = name not in self.names
        self.names.add(name)
        return new

    def agreed(self, theirs: Extension) -> Extension | None:
        """Return a peer's extension, under its name for it, with what both say of it; None if we
        do not have it, or if there is nothing that both could mean."""
        ours = self._offer.find(theirs.name)
        if ours is None:
            self.fault = "unsupported"
            return None
        spec = self._offer.registry.get(theirs.name)
        if spec is None:
            return theirs
        try:
            return Extension(theirs.name, spec.agree(theirs.properties, ours.properties))
        except ExtensionFault as error:
            self.fault = str(error)
            return None

    def require(self, theirs: Extension, rule: str) -> Refusal | None:
        """Note an extension that the peer requires; a refusal if it cannot be had."""
        if self.agreed(theirs) is None:
            return _unusable(self.fault, theirs, rule)
        self.add(theirs)
        return None

    def one_of_acks(self, suggested: Iterable[Extension]) -> Sequence[Extension]:
        """Return what is suggested without a second way of acks (A16)."""
        left = list(suggested)
        canonical = self._offer.canonical
        acks = {ACK, BATCH_ACK} & self.names
        if len(acks) == 2:
            only_suggested = {canonical(each.name) for each in left} & acks
            # One that is required stays; of two suggested ones, batches.
            dropped = only_suggested if len(only_suggested) == 1 else only_suggested & {ACK}
            left = [each for each in left if canonical(each.name) not in dropped]
        return left


def _version(offer: Offer, peer: Handshake) -> tuple[int, int] | Refusal:
    """Return the lower version (R4), if both speak its major (A28)."""
    theirs = (peer.major, peer.minor)
    lower = min(offer.version, theirs)
    if lower[0] != offer.version[0] or lower[0] == 0:
        ours = _dotted(offer.version)
        return Refusal("R5", f"unsupported version {_dotted(lower)}: this side speaks {ours}")
    return lower


def _agreed_version(offer: Offer, peer: Handshake) -> tuple[int, int] | Refusal:
    """As ``_version``, once the peer knows ours: it must not say a higher major any more."""
    if peer.major > offer.version[0]:
        said, ours = f"{peer.major}.{peer.minor}", _dotted(offer.version)
        return Refusal("R5", f"unsupported version {said}: this side speaks {ours}")
    return _version(offer, peer)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _unusable(fault: str, extension: Extension, rule: str) -> Refusal:
    name = extension.name[:_SHOWN]
    if fault == "unsupported":
        return Refusal(rule, f"unsupported extension: {name}")
    return Refusal(rule, f"the extension {name} cannot be used: {fault}")


def _all(message: Handshake) -> tuple[Extension, ...]:
    return message.required + message.optional


def _message(
    offer: Offer,
    version: tuple[int, int],
    required: Iterable[Extension],
    optional: Iterable[Extension],
) -> Handshake:
    return Handshake(*version, offer.identity, tuple(required), tuple(optional))


def _agreement(
    offer: Offer, version: tuple[int, int], identity: str, final: Handshake
) -> Agreement | Refusal:
    """Number the extensions of the final message (R10)."""
    chosen = _all(final)
    if len(chosen) > MAX_EXTENSIONS:
        return Refusal("R10", f"{len(chosen)} extensions; at most {MAX_EXTENSIONS} have an index")
    taken = _Taken(offer)
    specs = []
    for each in chosen:
        if refusal := _unless_usable(offer, each):
            return refusal
        if not taken.add(each):
            return Refusal("R10", f"the extension {each.name[:_SHOWN]!r} is chosen twice")
        spec = offer.registry.get(each.name)
        specs.append(spec or ExtensionSpec(name=each.name))
    extensions = tuple(
        Extension(spec.name, each.properties) for spec, each in zip(specs, chosen, strict=True)
    )
    return Agreement(version, identity, extensions, tuple(specs))


def _unless_usable(offer: Offer, extension: Extension) -> Refusal | None:
    """The final message decides (A8): what it says is only checked, not bargained about."""
    if offer.find(extension.name) is None:
        return _unusable("unsupported", extension, "R6")
    spec = offer.registry.get(extension.name)
    if spec is not None:
        try:
            spec.agree(extension.properties, ())
        except ExtensionFault as error:
            return _unusable(str(error), extension, "R6")
    return None
