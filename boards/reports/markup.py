"""Templates in which whatever is put is escaped, and what could hide words made visible.

Boards, brokers and file names write what a page shows. Besides HTML's own characters, control
characters and those that turn the direction of text are shown as they are written in Python.
"""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from host_broker.printable import printable_lines


def visible(words: str) -> str:
    """Return ``words`` with what could hide some of them made visible."""
    return printable_lines(words)


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
