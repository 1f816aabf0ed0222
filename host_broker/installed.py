"""What installed packages bring, found by their entry points."""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class RegistryError(Exception):
    """Something of an installed package cannot be used; the text says whose it is and why."""


def installed(group: str, kind: type[T], what: str) -> Iterator[tuple[str, T]]:
    """Give what the entry points of a group are, each with words that say whose it is.

    ``what`` is what people call one, "protocol". ``RegistryError`` for one that cannot be loaded,
    or is no ``kind``.
    """
    # Only now: it takes some 50 ms to import.
    from importlib.metadata import entry_points

    for entry in entry_points(group=group):
        package = entry.dist.name if entry.dist is not None else "an installed package"
        whose = f"the {what} {entry.name!r} of {package} ({entry.value})"
        try:
            found = entry.load()
        except Exception as error:  # whatever somebody else's module may raise
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise RegistryError(f"{whose} cannot be loaded: {why}") from error
        if not isinstance(found, kind):
            raise RegistryError(f"{whose} is a {type(found).__name__}, not a {kind.__name__}")
        yield whose, found
