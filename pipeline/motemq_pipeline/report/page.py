"""Facts and figures into one HTML file."""

import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from host_broker.printable import printable_lines
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.report import charts
from motemq_pipeline.report.facts import read_facts
from motemq_pipeline.storage import Storage


def write_report(place: Storage, out: Path) -> None:
    """Write the latest run in the tables of ``place`` to the file ``out``, replacing it as a whole.

    Raises ``PipelineError`` if a table is missing or ``out`` cannot be written.
    """
    facts = read_facts(place)
    environment = Environment(
        loader=PackageLoader("motemq_pipeline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = _duration
    environment.filters["number"] = _number
    html = environment.get_template("page.html.j2").render(
        facts=facts,
        round_trips=charts.round_trips(facts.round_trips),
        sensors=charts.telemetry(facts.rollup),
        latest=charts.latest(facts.latest),
        shown_boards=charts.SHOWN_BOARDS,
    )
    fresh = out.with_name(f".{out.name}.new")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(html, encoding="utf-8")
        os.replace(fresh, out)
    except OSError as error:
        raise PipelineError(f"cannot write the report {out}: {error.strerror or error}") from error


def _visible(value: Any) -> Any:
    """Return what a board has said so that nothing of it hides or turns other words."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable_lines(value)
    return value


def _duration(value: float | None, unit: str) -> str:
    """Return a measured time for people: "850 µs", "2.35 ms", "1.2 s"."""
    if value is None:
        return "\u2013"
    in_us = {"us": 1.0, "ms": 1e3, "s": 1e6}
    if unit not in in_us:
        return f"{_number(float(value))} {unit}"
    microseconds = value * in_us[unit]
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    if microseconds < 1e6:
        return f"{microseconds / 1000:.3g} ms"
    return f"{microseconds / 1e6:.3g} s"


def _number(value: Any) -> str:
    """Return a number with thin spaces between thousands, a dash for none."""
    if value is None:
        return "\u2013"
    text = f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"
    return text.replace(",", "\u202f")
