"""The ACL as data: who (a principal or a role) may do what (an action) where (path patterns).

::

    [roles.operators]
    subscribe = ["**"]
    publish = ["site/**"]
    deny.publish = ["site/alarm/**"]

    [principals.alice]
    roles = ["operators"]
    signal = ["$/signals/stop"]

Roles that need no mention of members: ``everybody``, also those who say nothing about themselves,
and ``users``, who have proved who they are. What a ``deny`` names nobody grants.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from host_broker.access.pattern import PatternError, PatternTree, pattern_levels

Action = Literal["connect", "publish", "subscribe", "call", "signal", "admin", "journal"]
ACTIONS: tuple[Action, ...] = get_args(Action)
EVERYBODY, USERS = "everybody", "users"  # roles
_DENY, _ROLES = "deny", "roles"
_KINDS = {"roles": "role", "principals": "principal"}
# Patterns in the trees that were made of several roles; some 1 KiB each.
_MOST_MERGED = 10_000


class RulesError(ValueError):
    """What is written is no ACL; the text says what is wrong where."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern of the ACL. ``subject`` is as in the file: ``roles.operators``."""

    subject: str
    action: Action
    pattern: str
    denies: bool = False

    def __str__(self) -> str:
        key = f"{_DENY}.{self.action}" if self.denies else self.action
        return f'[{self.subject}] {key} = "{self.pattern}"'


class Granted:
    """What one principal or role may do: patterns by action, and those that are denied."""

    def __init__(self, rules: Iterable[Rule] = (), roles: Iterable[str] = ()) -> None:
        self.roles = tuple(roles)
        self.rules = tuple(rules)
        self.allow: dict[Action, PatternTree[Rule]] = {}
        self.deny: dict[Action, PatternTree[Rule]] = {}
        for rule in self.rules:
            trees = self.deny if rule.denies else self.allow
            trees.setdefault(rule.action, PatternTree()).put(pattern_levels(rule.pattern), rule)


class Rules:
    """A whole ACL."""

    def __init__(
        self,
        roles: Mapping[str, Granted] | None = None,
        principals: Mapping[str, Granted] | None = None,
    ) -> None:
        self._roles = dict(roles or {})
        self._principals = dict(principals or {})
        self._merged: dict[tuple[str, ...], Granted] = {}  # by roles
        self._merged_count = 0

    @classmethod
    def read(cls, document: Mapping[str, object]) -> "Rules":
        """Read a parsed TOML document. Raises ``RulesError``."""
        found: dict[str, dict[str, Granted]] = {kind: {} for kind in _KINDS}
        for kind, table in document.items():
            if kind not in _KINDS:
                raise RulesError(
                    f"unknown table [{kind}]; there are [roles.NAME], [principals.NAME]"
                )
            for name, entry in _table(table, kind).items():
                found[kind][name] = _granted(f"{kind}.{name}", entry, kind == "principals")
        rules = cls(found["roles"], found["principals"])
        known = {EVERYBODY, USERS, *found["roles"]}
        for name, granted in found["principals"].items():
            for role in granted.roles:
                if role not in known:
                    raise RulesError(f"[principals.{name}] has the role {role!r}, which is nowhere")
        return rules

    @property
    def count(self) -> int:
        """How many patterns there are."""
        every = (*self._roles.values(), *self._principals.values())
        return sum(len(each.rules) for each in every)

    @property
    def principals(self) -> tuple[str, ...]:
        """The principals with rules or roles of their own."""
        return tuple(self._principals)

    def roles_of(self, name: str, *, known: bool) -> tuple[str, ...]:
        """Return the roles of a principal. ``known``: it has proved who it is."""
        own = self._principals.get(name) if known else None
        named = own.roles if own is not None else ()
        return (*named, *((USERS,) if known else ()), EVERYBODY)

    def of(self, name: str, *, known: bool) -> Iterator[Granted]:
        """Yield what concerns a principal: its own rules, then those of its roles.

        Those of several roles come as one, so that a search is one however many roles there are.
        """
        if (known or name == "anonymous") and name in self._principals:
            yield self._principals[name]
        roles = self.roles_of(name, known=known)
        merged = self._merged.get(roles)
        if merged is not None:
            yield merged
            return
        found = [self._roles[role] for role in roles if role in self._roles]
        count = sum(len(each.rules) for each in found)
        if len(found) > 1 and self._merged_count + count <= _MOST_MERGED:
            merged = self._merged[roles] = Granted(rule for each in found for rule in each.rules)
            self._merged_count += count
            yield merged
        else:
            yield from found


def _granted(subject: str, entry: object, may_have_roles: bool) -> Granted:
    rules: list[Rule] = []
    roles: tuple[str, ...] = ()
    for key, value in _table(entry, subject).items():
        if key == _ROLES and may_have_roles:
            roles = tuple(_texts(value, f"[{subject}] roles"))
        elif key == _DENY:
            for action, patterns in _table(value, f"{subject}.deny").items():
                rules += _patterns(subject, action, patterns, denies=True)
        else:
            rules += _patterns(subject, key, value, denies=False)
    return Granted(rules, roles)


def _patterns(subject: str, action: str, value: object, *, denies: bool) -> Iterator[Rule]:
    if action not in ACTIONS:
        known = ", ".join(ACTIONS)
        raise RulesError(f"[{subject}]: {action!r} is no action; there are {known}, and deny")
    where = f"[{subject}] {'deny.' if denies else ''}{action}"
    for pattern in _texts(value, where):
        try:
            pattern_levels(pattern)
        except PatternError as error:
            raise RulesError(f"{where}: {error}") from error
        yield Rule(subject, action, pattern, denies)


def _table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise RulesError(f"[{where}] must be a table")
    return value


def _texts(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise RulesError(f'{where} must be a list of texts, e.g. ["site/**"]')
    return value
