"""docs/alerts.md says what the code does."""

import re
from dataclasses import fields
from pathlib import Path

from motemq_pipeline.alerts import events
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.stream import SCHEMA

_PAGE = (Path(__file__).parents[2] / "docs/alerts.md").read_text()


def _shown(value: object) -> str:
    if value == "":
        return ""
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{each}"' for each in value) + "]`"
    return f"`{value}`"


def test_every_setting_is_there_with_its_default() -> None:
    page = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| .+\|$", _PAGE.split("## Settings")[1], re.M))
    assert page == {field.name: _shown(field.default) for field in fields(AlertSettings)}


def test_every_column_is_there_with_its_type() -> None:
    page = re.findall(r"^\| `(\w+)` \| (string|timestamp|double) \|", _PAGE, re.M)
    assert page == [tuple(column.split(" ")) for column in SCHEMA.split(", ")]


def test_every_kind_is_there() -> None:
    page = _PAGE.split("| kind | raised |")[1].split("**Numbers.**")[0]
    kinds = {value for name, value in vars(events).items() if name.isupper()}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == kinds
