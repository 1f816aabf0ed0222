"""Which extensions there are, and what two sides agree on about one.

``Registry`` has the document's; a vendor's (``x-``, R14) is added with an ``ExtensionSpec``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from host_broker.protocols.micromsg2.grammar import field_fault

Pairs = tuple[tuple[str, str], ...]  # the properties of an extension, as they are said

ACK, BATCH_ACK, DOTNET, JSON, PUBSUB = "ack", "batch-ack", "dotnet", "json", "pubsub"
# Ours, as the document has none that authenticates (NOTES.md).
LOGIN = "x-motemq-login"
DEFAULT_WINDOW = 10  # messages without an ack (R27)
MAX_WINDOW = 32767  # half of the numbers, so that none of them is ambiguous (A8)
MAX_ACK_EXPIRE_MS = 24 * 3600 * 1000
WINDOW_KEY = "max-count"  # what we say (A7)

PER_ACK_KEY = "MessagesPerAck"  # SharpMessaging's
_WINDOW_KEYS = (WINDOW_KEY, "count", "batch-max", PER_ACK_KEY)
_EXPIRE_KEY = "AckExpireTime"  # SharpMessaging's, in milliseconds
_MAX_DIGITS = 9


class ExtensionFault(ValueError):
    """Properties that an extension cannot have; the text says why."""


def as_said(theirs: Pairs, ours: Pairs) -> Pairs:
    """Agree on what the peer says, of an extension whose properties mean nothing to us."""
    return theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSpec:
    """One extension that we have code for.

    ``aliases`` are other names that peers call it by. ``has_frames``: it has EXTENSION frames;
    those of any other are skipped (A27). ``agree`` is told the properties that the peer says and
    those that we do, () for none, and returns those that hold for the connection; ExtensionFault if
    there can be none.
    """

    name: str
    aliases: tuple[str, ...] = ()
    has_frames: bool = False
    agree: Callable[[Pairs, Pairs], Pairs] = as_said


def window(properties: Pairs) -> int | None:
    """Return how many messages may be unacknowledged, None if that is not said (A7, A8)."""
    found = _numbers(properties, _WINDOW_KEYS, MAX_WINDOW)
    if len(found) > 1:
        raise ExtensionFault(f"it says two windows, {min(found)} and {max(found)}")
    return found.pop() if found else None


def ack_expire_s(properties: Pairs) -> float | None:
    """Return after how many seconds the peer takes a message without an ack for lost, if it says
    so; 0, which SharpMessaging says by default with ``ack``, is not said (A15)."""
    found = _numbers(properties, (_EXPIRE_KEY,), MAX_ACK_EXPIRE_MS, least=0) - {0}
    return min(found) / 1000 if found else None


def per_ack(properties: Pairs) -> int | None:
    """Return how many messages SharpMessaging awaits one ack for; None for any other peer (A31)."""
    found = _numbers(properties, (PER_ACK_KEY,), MAX_WINDOW)
    return min(found) if found else None


def _numbers(properties: Pairs, keys: tuple[str, ...], most: int, least: int = 1) -> set[int]:
    found = set()
    for key, value in properties:
        if key not in keys:
            continue
        if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
            raise ExtensionFault(f"{key} is {value[:20]!r}, it can be {least} to {most}")
        number = int(value)
        if not least <= number <= most:
            raise ExtensionFault(f"{key} is {number}, it can be {least} to {most}")
        found.add(number)
    return found


def _agree_on_batches(theirs: Pairs, ours: Pairs) -> Pairs:
    """Agree on the smaller window, under the name that the peer has for it (A7, A8)."""
    windows = [each for each in (window(theirs), window(ours)) if each is not None]
    ack_expire_s(theirs)
    if not windows:
        return theirs
    if None in (window(theirs), window(ours)):
        windows.append(DEFAULT_WINDOW)
    names = [key for key, _ in (*theirs, *ours) if key in _WINDOW_KEYS]
    others = tuple(pair for pair in theirs if pair[0] not in _WINDOW_KEYS)
    return ((names[0], str(min(windows))), *others)


def _agree_on_single_acks(theirs: Pairs, ours: Pairs) -> Pairs:
    """Check the properties, which change nothing: the window of ``ack`` is one message (A15).
    If we say ``MessagesPerAck``, SharpMessaging's server is to await no more than that."""
    window(theirs)
    ack_expire_s(theirs)
    ours_per_ack = per_ack(ours)
    if ours_per_ack is None:
        return theirs
    return tuple(
        (key, str(min(int(value), ours_per_ack)) if key == PER_ACK_KEY else value)
        for key, value in theirs
    )


OFFICIAL = (
    ExtensionSpec(name=ACK, has_frames=True, agree=_agree_on_single_acks),
    ExtensionSpec(name=BATCH_ACK, has_frames=True, agree=_agree_on_batches),
    ExtensionSpec(name=DOTNET, has_frames=True),
    ExtensionSpec(name=JSON),
    ExtensionSpec(name=PUBSUB, aliases=("pub-sub",)),
    ExtensionSpec(name=LOGIN, has_frames=True),
)


class Registry:
    """The extensions that we have code for, by all of their names.

    ``vendors`` are added to the document's; ValueError if the name of one does not begin with
    ``x-`` (R14), is no FIELD, or is taken.
    """

    def __init__(self, vendors: Iterable[ExtensionSpec] = ()) -> None:
        self._by_name: dict[str, ExtensionSpec] = {}
        for spec in OFFICIAL:
            self._add(spec)
        for spec in vendors:
            for name in (spec.name, *spec.aliases):
                if fault := field_fault(name):
                    raise ValueError(f"the extension {fault}")
                if not name.startswith("x-"):
                    raise ValueError(f"the extension {name!r} is a vendor's: call it 'x-{name}'")
            self._add(spec)

    def _add(self, spec: ExtensionSpec) -> None:
        for name in (spec.name, *spec.aliases):
            if name in self._by_name:
                raise ValueError(f"there are two extensions of the name {name!r}")
            self._by_name[name] = spec

    def get(self, name: str) -> ExtensionSpec | None:
        """Return the extension of a name, None if there is none."""
        return self._by_name.get(name)
