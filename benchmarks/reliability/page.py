"""docs/reliability.md: the tables of measured figures are between marks, and are replaced."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def replaced(text: str, name: str, table: str) -> str:
    """Return a page whose table ``name`` is another one. Raises ValueError if it has none."""
    begin, end = f"<!-- {name}: make reliability writes this -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the page has no place for the table '{name}': {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{table}\n\n{end}", text)
