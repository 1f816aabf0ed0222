"""HTML from values: whatever is not ``Html`` already is escaped, wherever it is put.

Boards, brokers and file names write what a page shows. Besides HTML's own characters, control
characters and those that turn the direction of text are made visible: they could hide words.
"""

import html

from host_broker.printable import printable_lines

_VOID = {"br", "meta", "wbr"}


class Html(str):
    """Text that is HTML already; only this module makes it."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return ``value`` as HTML that shows it as it is."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(visible(str(value)), quote=True))


def visible(words: str) -> str:
    """Return ``words`` with what could hide some of them made visible."""
    return printable_lines(words)


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. An attribute that is None or False is left out, True stands alone.

    ``class_`` and ``for_`` lose their underscore; other underscores become hyphens.
    """
    parts = [name]
    for key, value in attributes.items():
        word = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(word)
        elif value is not None and value is not False:
            parts.append(f'{word}="{text(value)}"')
    opening = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Html(opening)
    return Html(f"{opening}{joined(*children)}</{name}>")


def joined(*children: object) -> Html:
    """Return the children one after the other; None and "" are nothing."""
    return Html("".join(text(child) for child in children if child is not None))


def style_sheet(css: str) -> Html:
    """Return a ``style`` element of our own style sheet.

    Raises ``ValueError`` if ``css`` could end the element or fetch something.
    """
    if "</" in css or "url(" in css or "@import" in css:
        raise ValueError("a style sheet of a page that stands alone fetches and ends nothing")
    return Html(f"<style>{css}</style>")
