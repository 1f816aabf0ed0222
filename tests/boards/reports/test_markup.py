"""Whatever is put into a page is shown, and never understood."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boards.reports.markup import Html, joined, style_sheet, tag, text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.words += data


@given(st.text(), st.text())
def test_no_text_becomes_an_element_or_an_attribute(inside: str, title: str) -> None:
    reader = _Reader()
    reader.feed(tag("p", inside, title=title))
    reader.close()
    assert reader.tags == ["p"]
    assert set(reader.attributes) == {"title"}


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_shown_as_it_is(words: str) -> None:
    reader = _Reader()
    reader.feed(tag("p", words))
    reader.close()
    assert reader.words == words


@pytest.mark.parametrize("sign", ["\u202e", "\x00", "\x1b", "\u2066", "\ud800", "\x9b", "\u2028"])
def test_what_could_hide_words_is_made_visible(sign: str) -> None:
    assert text(f"a{sign}b") == f"a\\u{ord(sign):04x}b"


def test_html_is_not_escaped_twice() -> None:
    assert joined(tag("b", "<"), None, "&") == "<b>&lt;</b>&amp;"
    assert tag("br") == "<br>"
    assert (
        tag("p", tabindex=0, hidden=True, title=None, open=False) == '<p tabindex="0" hidden></p>'
    )
    assert tag("p", class_="x", aria_label="y") == '<p class="x" aria-label="y"></p>'
    assert isinstance(text("a"), Html)


@pytest.mark.parametrize("css", ["a{} </style>", "a{background:url(x)}", "@import 'x';"])
def test_a_style_sheet_cannot_end_its_element_or_fetch(css: str) -> None:
    with pytest.raises(ValueError, match="fetches and ends nothing"):
        style_sheet(css)
