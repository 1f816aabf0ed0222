"""The client name of a record whose publications have a number (docs/http.md, Once)."""

import re

from host_broker.registry import STORED_FORM, protocols

Number = tuple[int, int]  # a batch, and a part of it

# By which protocol publications with a number come; clients of others have names of their own.
PROTOCOL = protocols()[STORED_FORM].journal_code

_NAME = re.compile(r"([A-Za-z0-9._:-]{1,128}) (\d{1,18})\.(\d{1,9})")


def name_of(publisher: str, number: Number) -> str:
    """Return the client name of a record."""
    return f"{publisher} {number[0]}.{number[1]}"


def is_mark(client: str) -> bool:
    """Whether the client name of a record, of ``PROTOCOL``, is one of ``name_of``."""
    return _NAME.fullmatch(client) is not None


def read_mark(client: str) -> tuple[str, Number] | None:
    """Return publisher and number of a client name; None if it is no such name."""
    match = _NAME.fullmatch(client)
    return (match[1], (int(match[2]), int(match[3]))) if match else None
