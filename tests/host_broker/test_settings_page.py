"""docs/settings.md names every setting and its default, and no other."""

import dataclasses
import re
from pathlib import Path

from host_broker.net.settings_source import load_settings, sections

_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_page_lists_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`([^`]*)` )?\| \S", _PAGE.read_text(), re.MULTILINE)
    expected = [
        (f"{section}.{field.name}", _text(getattr(kind(), field.name)))
        for section, kind in sections().items()
        for field in dataclasses.fields(kind)
    ]
    assert rows == expected


def test_what_it_says_of_zero_can_be_set() -> None:
    keys = re.findall(r"^\| `([\w.]+)` \|.*\b0 = ", _PAGE.read_text(), re.MULTILINE)
    assert len(keys) >= 4
    load_settings(None, [f"{key}=0" for key in keys])
