"""The one question: may this principal do that there?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from host_broker.access.pattern import OWN, PatternTree, pattern_levels
from host_broker.access.principal import Principal
from host_broker.access.rules import Action, Rule, Rules

# Clients tell themselves something under an unguessable level below this, to see that the broker
# is there; who may connect may do that.
ECHO = b"motemq/echo/"
_NOBODYS = "only the broker publishes there, for the client itself"


@dataclass(frozen=True, slots=True)
class ClientPaths:
    """Where the clients of one protocol are on the bus; ``%c`` is a client's name as a level.

    ``speaks``: what the broker publishes for a client, and nobody else. ``hears``: what a client
    gets without asking. ``calls``: what others publish to call it, and ``answers``, where they
    subscribe for that.
    """

    speaks: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer. ``rule`` is the line of the ACL that decided, if one did; ``reason`` says why."""

    allowed: bool
    reason: str
    rule: Rule | None = None

    def __bool__(self) -> bool:
        return self.allowed


_YES = Decision(True, "there is no ACL, and this is free for all who can connect")
_YES_ECHO = Decision(True, "what a client tells itself to see that the broker is there")
_YES_OWN = Decision(True, "it is the client's own")
_YES_INTERNAL = Decision(True, "it is a part of the broker")


class Rights:
    """Answers by an ACL; without one everything is allowed but signals, administration and the
    paths of other clients.

    ``paths``: where the protocols' clients are on the bus. ``administrators``: names of principals
    that may administrate without an ACL (the broker's own user by a unix socket).
    """

    def __init__(
        self,
        rules: Rules | None = None,
        paths: Iterable[ClientPaths] = (),
        administrators: Iterable[str] = (),
    ) -> None:
        self.rules = rules
        self._administrators = frozenset(administrators)
        self._paths = tuple(paths)
        self._spoken: PatternTree[str] = PatternTree()
        self._called: list[tuple[bytes, ...]] = []
        self._answers: list[tuple[bytes, ...]] = []
        for each in self._paths:
            for text in each.speaks:
                self._spoken.put(_anybodys(text), text)
            self._called += [pattern_levels(text) for text in each.calls]
            self._answers += [pattern_levels(text) for text in each.answers]

    @property
    def is_open(self) -> bool:
        """Whether there is no ACL."""
        return self.rules is None

    def is_guarded(self, topic: bytes) -> bool:
        """Whether even without an ACL not everybody may publish there."""
        return self._spoken.overlapping(topic) is not None

    def allows(
        self, principal: Principal, action: Action, path: bytes | str, *, prefix: bool = False
    ) -> Decision:
        """Say whether ``principal`` may do ``action`` at ``path``.

        Paths: of ``publish`` and ``subscribe`` a topic, of ``call`` the name of the client that is
        called, of ``connect`` the protocol (``http`` too), of ``signal`` ``$/signals/stop`` or
        ``$/signals/terminate``, of ``journal`` the topics to be read (``**``: all) or
        ``groups/NAME``, of ``admin`` what is asked for. A topic with wildcards is allowed if all
        that it can mean is, and denied if anything of it is. ``prefix``: all topics that begin so.
        """
        if isinstance(path, str):
            path = path.encode()
        if principal.kind == "internal":
            return _YES_INTERNAL
        if path == b"**":
            path, prefix = b"", True
        if action == "publish":
            return self._publish(principal, path)
        if action == "subscribe":
            return self._subscribe(principal, path, prefix=prefix)
        return self._by_rules(principal, action, path, prefix=prefix)

    # ---- what paths mean ----

    def _publish(self, principal: Principal, topic: bytes) -> Decision:
        owner = self._spoken.overlapping(topic)
        if owner is not None:
            return Decision(False, f"{owner}: {_NOBODYS}")
        for called in self._called:
            name = _name_in(called, topic)
            if name is None:
                continue
            decision = self._by_rules(principal, "call", name)
            if not decision or _is_within(called, topic):
                return decision
        if topic.startswith(ECHO) and topic.count(b"/") == ECHO.count(b"/") and b"*" not in topic:
            return _YES_ECHO
        return self._by_rules(principal, "publish", topic)

    def _subscribe(self, principal: Principal, topic: bytes, *, prefix: bool) -> Decision:
        literal = b"*" not in topic.split(b"/") and not prefix
        if literal and topic.startswith(ECHO) and topic.count(b"/") == ECHO.count(b"/"):
            return _YES_ECHO
        decision = self._by_rules(principal, "subscribe", topic, prefix=prefix)
        if decision or not literal or (decision.rule is not None and decision.rule.denies):
            return decision
        for answers in self._answers:
            name = _name_in(answers, topic)
            if name is not None and (call := self._by_rules(principal, "call", name)):
                return call
        return decision

    # ---- the ACL ----

    def _by_rules(
        self, principal: Principal, action: Action, path: bytes, *, prefix: bool = False
    ) -> Decision:
        if self.rules is None:
            return self._without_rules(principal, action, path)
        own = principal.own
        granted = list(self.rules.of(principal.name, known=principal.is_known))
        for each in granted:
            tree = each.deny.get(action)
            rule = tree.overlapping(path, own, prefix=prefix) if tree is not None else None
            if rule is not None:
                return Decision(False, "denied", rule)
        for each in granted:
            tree = each.allow.get(action)
            rule = tree.covering(path, own, prefix=prefix) if tree is not None else None
            if rule is not None:
                return Decision(True, "allowed", rule)
        return Decision(False, f"no rule lets {principal.name!r} {action} there")

    def _without_rules(self, principal: Principal, action: Action, path: bytes) -> Decision:
        if action == "signal":
            return Decision(False, "without an ACL nobody may end the broker by a message")
        if action == "admin" and principal.name not in self._administrators:
            return Decision(False, "without an ACL only the broker's own user administrates")
        return _YES

    def own(
        self, principal: Principal, action: Action, path: bytes, paths: ClientPaths
    ) -> Decision:
        """Say whether a client may be heard or hear where its protocol puts it.

        It may, unless the ACL denies it; ``path`` elsewhere is asked about as usual.
        """
        patterns = paths.speaks if action == "publish" else paths.hears
        own = principal.own
        if not own or not any(_is_within(_as(own, text), path) for text in patterns):
            return self.allows(principal, action, path)
        for each in (
            () if self.rules is None else self.rules.of(principal.name, known=principal.is_known)
        ):
            tree = each.deny.get(action)
            rule = tree.overlapping(path, own) if tree is not None else None
            if rule is not None:
                return Decision(False, "denied", rule)
        return _YES_OWN


def _anybodys(text: str) -> tuple[bytes, ...]:
    return tuple(b"*" if level == OWN else level for level in pattern_levels(text))


def _as(own: bytes, text: str) -> tuple[bytes, ...]:
    return tuple(own if level == OWN else level for level in pattern_levels(text))


def _name_in(pattern: Sequence[bytes], topic: bytes) -> bytes | None:
    """Return what ``%c`` would be if the topic can be one of the pattern; else None."""
    levels = topic.split(b"/")
    if len(levels) != len(pattern):
        return None
    name = None
    for level, wanted in zip(levels, pattern, strict=True):
        if wanted == OWN:
            name = level
        elif wanted != b"*" and level not in (wanted, b"*"):
            return None
    return name


def _is_within(pattern: Sequence[bytes], topic: bytes) -> bool:
    """Whether all that the topic can mean is of the pattern (without ``**``)."""
    levels = topic.split(b"/")
    return len(levels) == len(pattern) and all(
        wanted in (b"*", OWN, level) for level, wanted in zip(levels, pattern, strict=True)
    )
