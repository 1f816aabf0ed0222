"""JUnit XML from a run's record: one suite per board, so that any CI can show it.

What is no verdict on the code (the rig's own trouble) is an error, a failed check a failure, an
excused one is skipped with its reason, and so is one that was not run.
"""

import re
from xml.etree import ElementTree as ET

from boards.inventory.models import Models, all_models
from boards.reports.record import ABORTED, BoardRecord, Interval, RunRecord
from host_broker.printable import printable_lines

# What XML 1.0 cannot carry, not even escaped: a board may print anything.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {
    "failed": "failure",
    "error": "error",
    "invalid": "error",
    "not run": "error",
    "unfinished": "error",
    "quarantined": "skipped",
    "absent": "skipped",
    "skipped": "skipped",
}


def junit_xml(run: RunRecord, models: Models | None = None) -> bytes:
    """Return the document. A run without an end has an error of its own.

    ``models`` say which chip a board has: those of its desk, default those that ship.
    """
    root = ET.Element("testsuites", name=_clean(run.rig or "rig"))
    for board in run.boards.values():
        model = (models or all_models()).get(board.model)
        root.append(_suite(run, board, model.kind if model else ""))
    if run.outcome == ABORTED:
        suite = ET.SubElement(root, "testsuite", name="rig", tests="1", errors="1", failures="0")
        case = ET.SubElement(suite, "testcase", classname="rig", name="run")
        ET.SubElement(case, "error", message="the run was aborted: it has no end")
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _suite(run: RunRecord, board: BoardRecord, chip: str) -> ET.Element:
    suite = ET.Element("testsuite", name=_clean(board.id), timestamp=_clean(run.ts))
    counted = _counted(board)
    about = {
        "board": board.id,
        "model": board.model,
        "chip": chip,
        "virtual": str(board.virtual).lower(),
        "firmware": board.firmware,
        "firmware_sha": board.fw_sha,
        "client_sha": board.client_sha,
        "flaky": str(any(one.shown_outcome == "flaky" for one in counted)).lower(),
    }
    _properties(suite, about)
    for interval in counted:
        suite.append(_case(board, interval))
    kinds = [_KINDS.get(one.shown_outcome, "") for one in counted]
    suite.set("tests", str(len(counted)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(kinds.count(kind)))
    suite.set("time", f"{sum(one.seconds for one in counted):.3f}")
    return suite


def _counted(board: BoardRecord) -> list[Interval]:
    """Return the last tries; the step "check" is only the sum of its checks."""
    last = board.last().values()
    has_checks = any(one.check for one in last)
    return [
        one
        for one in last
        # An error of the sum may be in none of its parts: the time was up between two.
        if one.check or one.step != "check" or not has_checks or one.outcome in ("error", "")
    ]


def _case(board: BoardRecord, interval: Interval) -> ET.Element:
    shown = interval.shown_outcome
    case = ET.Element(
        "testcase",
        classname=_clean(f"rig.{board.id}"),
        name=_clean(interval.name),
        time=f"{interval.seconds:.3f}",
    )
    if shown == "flaky":
        _properties(case, {"flaky": "true"})
    if kind := _KINDS.get(shown):
        message = _clean(interval.message or f"it is {shown}")
        found = ET.SubElement(case, kind, message=message)
        found.text = message
        said = [
            text
            for step, check, text in board.console
            if (step, check) == (interval.step, interval.check)
        ]
        if said:
            ET.SubElement(case, "system-out").text = _clean("\n".join(said))
    return case


def _properties(parent: ET.Element, about: dict[str, str]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in about.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", printable_lines(text))
