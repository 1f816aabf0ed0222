"""Filters of subscriptions: ``count>N5``, ``name=Tjonas``; several must all hold (R37, A23)."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from host_broker.bus.publication import Properties
from host_broker.protocols.micromsg2.grammar import GrammarError
from host_broker.protocols.micromsg2.values import Value, read_number, read_value

MAX_FILTERS = 16  # of one subscription
MAX_FILTER_BYTES = 4096  # of all filters of one subscription

_CONDITION = re.compile(rb"([A-Za-z0-9_-]+)(!=|<=|[=<>~&])(.*)", re.DOTALL)
# A value is URL encoded, so that none of these begins one: it is an operator that there is not.
_OPERATORS = b"=<>~&!"
_SHOWN = 60

_TEXT: dict[bytes, Callable[[bytes, bytes], bool]] = {
    b"=": operator.eq,
    b"!=": operator.ne,
    b"<": bytes.startswith,
    b">": bytes.endswith,
    b"&": operator.contains,
    b"~": lambda found, value: value not in found,
}
_NUMBER: dict[bytes, Callable[[Decimal, Decimal], bool]] = {
    b"=": operator.eq,
    b"!=": operator.ne,
    b"<": operator.lt,
    b"<=": operator.le,
    b">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter: the property, the operator and the value.

    The property is compared as what the value is, however it was published (A20). Where there is no
    such property, or no number to compare with one, no operator holds.
    """

    name: str
    operator: bytes
    value: Value

    def holds(self, properties: Properties) -> bool:
        """Whether it does, for a publication of these properties. Text is case-sensitive (R38)."""
        found = properties.get(self.name)
        if found is None:
            return False
        wanted = self.value.number
        if wanted is None:
            return _TEXT[self.operator](found, self.value.text)
        number = read_number(found)
        return number is not None and _NUMBER[self.operator](number, wanted)


@dataclass(frozen=True, slots=True)
class Conditions:
    """A filter of the bus: all of the conditions hold."""

    conditions: tuple[Condition, ...]

    def __call__(self, topic: bytes, properties: Properties, body: bytes) -> bool:
        """Whether a publication is wanted."""
        return all(condition.holds(properties) for condition in self.conditions)


def compile_filters(texts: Sequence[bytes]) -> Conditions | None:
    """Read the filters of a subscription; None for none. GrammarError says what is wrong."""
    if len(texts) > MAX_FILTERS or sum(map(len, texts)) > MAX_FILTER_BYTES:
        raise GrammarError(
            "R37",
            f"a subscription has at most {MAX_FILTERS} filters, of {MAX_FILTER_BYTES} bytes "
            f"together; these are {len(texts)} of {sum(map(len, texts))}",
        )
    return Conditions(tuple(map(_condition, texts))) if texts else None


def _condition(text: bytes) -> Condition:
    shown = text[:_SHOWN]
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise GrammarError(
            "R39", f"the filter {shown!r} is not a property, = != < <= > ~ or &, and a value"
        )
    name, said, encoded = found.groups()
    if encoded[:1] and encoded[:1] in _OPERATORS:
        raise GrammarError(
            "R39",
            f"the filter {shown!r} has an operator that there is not, or its "
            "value is not URL encoded",
        )
    value = read_value(encoded)
    known: dict[bytes, Any] = _TEXT if value.number is None else _NUMBER
    if said not in known:
        what = "text" if value.number is None else "numbers and dates"
        raise GrammarError("R39", f"{said.decode()} of the filter {shown!r} is not for {what}")
    return Condition(name.decode(), said, value)
