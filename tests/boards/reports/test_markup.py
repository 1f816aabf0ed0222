"""Whatever is put into a page is shown, and never understood."""

from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boards.reports.page import templates
from host_broker.printable import printable_lines

_PARAGRAPH = templates().from_string('<p title="{{ title }}">{{ inside }}</p>')


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
    reader.feed(_PARAGRAPH.render(inside=inside, title=title))
    reader.close()
    assert reader.tags == ["p"]
    assert set(reader.attributes) == {"title"}


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_shown_as_it_is(words: str) -> None:
    reader = _Reader()
    reader.feed(_PARAGRAPH.render(inside=words, title=""))
    reader.close()
    assert reader.words == words


@pytest.mark.parametrize("sign", ["\u202e", "\x00", "\x1b", "\u2066", "\ud800", "\x9b", "\u2028"])
def test_what_could_hide_words_is_made_visible(sign: str) -> None:
    shown = f"a\\x{ord(sign):02x}b" if ord(sign) < 256 else f"a\\u{ord(sign):04x}b"
    assert printable_lines(f"a{sign}b") == shown
    assert _PARAGRAPH.render(inside=f"a{sign}b", title="") == f'<p title="">{shown}</p>'


def test_html_of_a_template_is_not_escaped_twice() -> None:
    text = "{% macro bold(word) %}<b>{{ word }}</b>{% endmacro %}{{ bold('<') }}{{ '&' }}"
    assert templates().from_string(text).render() == "<b>&lt;</b>&amp;"


def test_the_style_sheet_cannot_end_its_element_or_fetch() -> None:
    css = (files("boards.reports") / "templates/page.css").read_text(encoding="utf-8")
    assert not any(sign in css for sign in ("</", "url(", "@import", "{{", "{%", "{#"))
