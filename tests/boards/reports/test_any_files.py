"""Whatever is in a run's files, every report of it is made, and is well formed."""

import json
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from boards.reports.junit import junit_xml
from boards.reports.markdown import markdown
from boards.reports.page import html_page
from boards.reports.record import read_run
from boards.session.event_writer import _BOARD_COLUMNS, _EVENT_COLUMNS, _SAMPLE_COLUMNS

_LEAD: dict[str, Any] = {"schema_version": 1, "run_id": "r", "rig": "g", "ts": "", "mono_ns": 0}
_EVENTS = [
    *("run_started", "environment", "board_started", "step_started", "step_finished"),
    *("check_finished", "console", "board_finished", "run_finished", "what is this"),
]
_NAMES = st.sampled_from(["", "b1", "b2", "ping", "check", "flash", "will", "</td>", "\x00"])
_NUMBERS = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1e-300, 1e300, -0.0, 5e-324, 10**400]),
)
_ANYTHING = st.one_of(_NUMBERS, st.text(max_size=20), st.lists(st.integers(), max_size=2))
_KNOWN = {
    "event": st.sampled_from(_EVENTS),
    "mono_ns": st.integers(0, 10**12),
    "attempt": st.integers(0, 3),
    "outcome": st.sampled_from(["", "passed", "failed", "error", "quarantined", "odd one"]),
    "metric": st.sampled_from(["rtt", "will_delay", "will_earliest", "heap_free", "rate"]),
    "unit": st.sampled_from(["us", "ms", "s", "bytes", "msg/s", "", "odd"]),
    "better": st.sampled_from(["lower", "higher", ""]),
    "virtual": st.booleans(),
    "board_id": st.sampled_from(["b1", "b1", "b2", ""]),
    **dict.fromkeys(("step", "check", "model", "message"), _NAMES),
    **dict.fromkeys(("value", "limit", "duration_s"), _NUMBERS),
}


@st.composite
def _rows(draw: st.DrawFn, columns: dict[str, Any]) -> list[str]:
    base = {**_LEAD, **_BOARD_COLUMNS, **columns}
    lines = []
    for _ in range(draw(st.integers(0, 12))):
        row = {**base, **{name: draw(_KNOWN[name]) for name in base if name in _KNOWN}}
        for name in draw(st.sampled_from([[], [], [], *([one] for one in sorted(base))])):
            row[name] = draw(_ANYTHING)  # one column that is not as documented
        lines.append(json.dumps(row))
    return lines


@settings(max_examples=80, deadline=None)
@given(_rows(_EVENT_COLUMNS), _rows(_SAMPLE_COLUMNS), _rows(_EVENT_COLUMNS))
def test_every_report_of_any_files_is_made(
    events: list[str], samples: list[str], former: list[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="rig-report-") as folder:
        now, before = Path(folder) / "now", Path(folder) / "before"
        for place, lines in ((now, events), (before, former)):
            place.mkdir()
            (place / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
            (place / "samples.jsonl").write_text("".join(f"{line}\n" for line in samples))
        run = read_run(now)
        page = html_page(run, [read_run(before)] * 7)
    assert page.count("<table") == page.count("</table")
    assert page.rstrip().endswith("</html>")
    assert ET.fromstring(junit_xml(run)).tag == "testsuites"
    assert markdown(run).startswith("### Rig")
