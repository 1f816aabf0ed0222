"""Templates in which whatever is put is escaped, and what could hide words made visible.

Boards, brokers and file names write what a page shows. Besides HTML's own characters, control
characters and those that turn the direction of text are shown as they are written in Python.
"""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

# C0 and C1 without tab and newline, surrogates, bidirectional controls, line separators.
_HIDING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def visible(words: str) -> str:
    """Return ``words`` with what could hide some of them made visible."""
    return _HIDING.sub(lambda found: f"\\u{ord(found[0]):04x}", words)


def templates() -> Environment:
    """Return the environment of the templates beside this module."""
    return Environment(
        loader=PackageLoader("boards.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else visible(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
