"""The functions that programs may call: those of fqd, and those of installed packages.

A package adds one by an entry point of the group ``motemq.fq`` (docs/fq.md).
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from host_broker.installed import RegistryError, installed

GROUP = "motemq.fq"
MAX_ARGUMENTS = 16
ANY = "VA"  # the signature of a function that takes any arguments

Argument = bytes | bool | float
# Whether a message fits: its route, its payload, the arguments of the call.
Test = Callable[..., bool]

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SIGNATURE = re.compile(f"[sbd]{{0,{MAX_ARGUMENTS}}}|{ANY}")


@dataclass(frozen=True, slots=True)
class RouteFunction:
    """A function that programs may call: ``test(route, payload, *arguments)``, all of them bytes
    but for arguments that are booleans or numbers.

    ``signature`` is a letter for each argument: ``s`` a string (bytes without NUL), ``b`` a
    boolean, ``d`` a number (float); ``VA``: any arguments, for calls that no other signature of
    the same name fits. A test that raises has not passed. ValueError for a name or a signature that
    no program can call.
    """

    name: str
    signature: str
    test: Test

    def __post_init__(self) -> None:
        """Look whether a program could call it."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                f"the function's name {self.name!r} is not letters, digits and underscores, the "
                "first of them no digit"
            )
        if not isinstance(self.signature, str) or not _SIGNATURE.fullmatch(self.signature):
            raise ValueError(
                f"the signature {self.signature!r} of {self.name} is neither {ANY} nor at most "
                f"{MAX_ARGUMENTS} of the letters s, b and d"
            )
        if not callable(self.test):
            raise ValueError(f"the test of {self.name} cannot be called: {self.test!r}")

    @property
    def key(self) -> str:
        """What it is found by: ``name__signature``, as fqd calls its symbols."""
        return f"{self.name}__{self.signature}"


Functions = Mapping[str, RouteFunction]  # by ``RouteFunction.key``


def find_function(
    functions: Functions, name: str, arguments: Iterable[Argument]
) -> RouteFunction | None:
    """Return the function that a call means: that of its signature, else the one that takes any
    arguments, else None."""
    exact = functions.get(f"{name}__{signature_of(arguments)}")
    return exact if exact is not None else functions.get(f"{name}__{ANY}")


def signature_of(arguments: Iterable[Argument]) -> str:
    """Return the signature that arguments have."""
    return "".join(
        "s" if isinstance(each, bytes) else "b" if isinstance(each, bool) else "d"
        for each in arguments
    )


def _route_contains(route: bytes, payload: bytes, part: bytes) -> bool:
    return part in route


def _payload_prefix(route: bytes, payload: bytes, part: bytes) -> bool:
    return payload.startswith(part)


def _payload_contains(route: bytes, payload: bytes, part: bytes) -> bool:
    return part in payload


def _by_key(functions: Iterable[RouteFunction]) -> dict[str, RouteFunction]:
    return {each.key: each for each in functions}


# What needs nothing but the message and its arguments (R41).
BUILT_IN: Functions = _by_key(
    (
        RouteFunction("true", "", lambda route, payload: True),
        RouteFunction("route_contains", "s", _route_contains),
        RouteFunction("payload_prefix", "s", _payload_prefix),
        RouteFunction("payload_contains", "s", _payload_contains),
    )
)
_RESERVED = frozenset({*BUILT_IN, "sample__d"})


def broker_functions(
    random_u16: Callable[[], int], own: Iterable[RouteFunction] | None = None
) -> Functions:
    """Return all functions of one broker.

    ``random_u16`` (0 to 65535) decides for ``sample(d)``: it passes with the probability d. ``own``
    are those from outside; None: those of installed packages.
    """

    def sample(route: bytes, payload: bytes, probability: float) -> bool:
        return ((random_u16() << 16) + random_u16()) / (1 << 32) < probability

    chance = RouteFunction("sample", "d", sample)
    others = installed_functions() if own is None else own
    return {**_by_key(others), **BUILT_IN, chance.key: chance}


@functools.cache
def installed_functions() -> tuple[RouteFunction, ...]:
    """Return the functions of installed packages.

    ``RegistryError`` for one that cannot be loaded, is no ``RouteFunction``, or has a name and a
    signature that are in use.
    """
    found: dict[str, RouteFunction] = {}
    for whose, function in installed(GROUP, RouteFunction, "fq function"):
        if function.key in found or function.key in _RESERVED:
            raise RegistryError(
                f"{whose} is {function.name} with the signature {function.signature!r}, and there "
                "is one already"
            )
        found[function.key] = function
    return tuple(found.values())
