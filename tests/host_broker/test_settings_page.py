"""docs/settings.md names every setting and its default, and no other."""

import dataclasses
import re
from pathlib import Path

from host_broker.settings import Settings

_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_page_lists_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`([^`]*)` )?\| \S", _PAGE.read_text(), re.MULTILINE)
    settings = Settings()
    expected = [
        (f"{section.name}.{field.name}", _text(getattr(values, field.name)))
        for section in dataclasses.fields(settings)
        for values in [getattr(settings, section.name)]
        for field in dataclasses.fields(values)
    ]
    assert rows == expected
