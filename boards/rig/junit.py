"""JUnit XML from a run's events: one suite per board, so that any CI can show it.

What is no verdict on the code (the rig's own trouble) is an error, a failed check a failure, an
excused one is skipped with its reason.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

Row = Mapping[str, Any]

# What XML 1.0 cannot carry, not even escaped: a board may print anything.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {"failed": "failure", "error": "error", "quarantined": "skipped"}


def read_events(folder: Path) -> list[Row]:
    """Return the rows of ``events.jsonl`` in a run's folder; a cut last line is left out.

    Raises ``FileNotFoundError``.
    """
    rows: list[Row] = []
    for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break  # the run was killed while it wrote
    return rows


def junit_xml(rows: Sequence[Row]) -> bytes:
    """Return the document. A run without an end has an error of its own."""
    root = ET.Element("testsuites", name=rows[0]["rig"] if rows else "rig")
    boards = sorted({row["board_id"] for row in rows if row["board_id"]})
    for board in boards:
        root.append(_suite(board, [row for row in rows if row["board_id"] == board]))
    if not any(row["event"] == "run_finished" for row in rows):
        suite = ET.SubElement(root, "testsuite", name="rig", tests="1", errors="1", failures="0")
        case = ET.SubElement(suite, "testcase", classname="rig", name="run")
        ET.SubElement(case, "error", message="the run was aborted: it has no end")
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _suite(board: str, rows: Sequence[Row]) -> ET.Element:
    last = rows[-1]
    suite = ET.Element("testsuite", name=board, timestamp=str(rows[0]["ts"]))
    properties = ET.SubElement(suite, "properties")
    about = {
        "board": board,
        "model": last["model"],
        "virtual": str(last["virtual"]).lower(),
        "firmware_sha": last["fw_sha"],
        "client_sha": last["client_sha"],
        "flaky": str(bool(_flaky(rows))).lower(),
    }
    for name, value in about.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    finished = _last_attempts(rows)
    for row in finished:
        suite.append(_case(board, row, _flaky(rows)))
    counts = [_KINDS.get(row["outcome"], "") for row in finished]
    suite.set("tests", str(len(finished)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(counts.count(kind)))
    suite.set("time", f"{sum(row['duration_s'] or 0.0 for row in finished):.3f}")
    return suite


def _last_attempts(rows: Sequence[Row]) -> list[Row]:
    """Return the last attempt of each step and check; the step "check" is only their sum."""
    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row["event"] in ("step_finished", "check_finished"):
            last[row["step"], row["check"]] = row
    has_checks = any(check for _, check in last)
    return [
        row
        for (step, check), row in last.items()
        # An error of the sum may be in none of its parts: the time was up between two.
        if check or step != "check" or not has_checks or row["outcome"] == "error"
    ]


def _flaky(rows: Sequence[Row]) -> set[str]:
    return {
        row["step"]
        for row in rows
        if row["event"] == "step_finished" and row["outcome"] == "passed" and row["attempt"] > 1
    }


def _case(board: str, row: Row, flaky: set[str]) -> ET.Element:
    name = row["check"] or row["step"]
    case = ET.Element(
        "testcase", classname=f"rig.{board}", name=name, time=f"{row['duration_s'] or 0.0:.3f}"
    )
    message = _clean(str(row["message"]))
    if kind := _KINDS.get(row["outcome"]):
        found = ET.SubElement(case, kind, message=message)
        found.text = message
    elif row["step"] in flaky and not row["check"]:
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="flaky", value="true")
    return case


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
