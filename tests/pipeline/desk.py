"""A desk with known faults: a journal written by docs/journal.md's text, and a rig's lines."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.journal_segment import START_NS, Segment, Sender, packet

ODD_BOARD = '<i>&"$x$'  # a name that must be escaped wherever it is shown
Message = tuple[str, bytes]


def segment_path(journal: Path, partition: int, first: int = 0) -> Path:
    return Segment(partition, first).path(journal)


def write_segment(
    journal: Path, partition: int, runs: Iterable[tuple[Sender, list[Message]]], first: int = 0
) -> Path:
    """Write a segment with a block per run, a millisecond apart."""
    segment = Segment(partition, first)
    for index, (sender, messages) in enumerate(runs):
        packets = [packet(*message) for message in messages]
        segment.record(sender, packets, START_NS + index * 1_000_000)
    return segment.write(journal)


def reading(board: str, seq: int, sensor: str, value: Any, /, **changed: Any) -> bytes:
    fields = {"v": 1, "board": board, "seq": seq, "t_ms": seq * 1000, "sensor": sensor}
    unit = {"temperature": "C", "humidity": "%", "pressure": "hPa"}.get(sensor, "count")
    return json.dumps({**fields, "unit": unit, "value": value, **changed}).encode()


def stream(board: str, count: int) -> list[Message]:
    """Return ``count`` readings and the end message; temperatures are 20.0, 20.3, 20.6 …"""
    sensors = ["temperature", "humidity", "pressure"]
    messages = [
        (
            f"telemetry/{board}/{sensors[seq % 3]}",
            reading(board, seq, sensors[seq % 3], 20 + seq / 10),
        )
        for seq in range(count)
    ]
    return [*messages, (f"telemetry/{board}/end", reading(board, count, "end", count))]


REFUSED: list[tuple[bytes, str]] = [
    (b"", "the payload is empty"),
    (b"\xff\xfe", "the payload is not UTF-8"),
    (b"21.5 C", "the payload is not a JSON object"),
    (b"[1, 2]", "the payload is not a JSON object"),
    (b'{"v": 1}', "the field 'board' is missing or not a string"),
    (reading("vpico-1", 1, "temperature", None), "the field 'value' is missing or not a double"),
    (reading("vpico-1", 1, "temperature", 1, seq="x"), "the field 'seq' is missing or not a long"),
    (reading("vpico-1", 1, "temperature", 1, v=2), "the field 'v' is not 1"),
    (reading("vpico-1", -1, "temperature", 1), "'seq' is negative"),
]


def write_journal(journal: Path) -> None:
    """Board vpico-1: two lost, one twice. vpico-2 (LightMQ): whole. The odd board: no end."""
    fmqp, lightmq = Sender(2, 1), Sender(3, 2, "vpico-2")
    first = stream("vpico-1", 60)
    faulty = [*first[:10], *first[12:21], first[20], *first[21:]]
    odd = [(path, body) for path, body in stream(ODD_BOARD, 3) if "end" not in path]
    refused = [("telemetry/vpico-1/temperature", payload) for payload, _ in REFUSED]
    aside = [("check/vpico-1/up", b"#7 hello"), ("home/kitchen", b"21")]
    write_segment(
        journal,
        0,
        [
            (fmqp, faulty[:30]),
            (Sender(0, 0), [("lightmq/vpico-2/status", b"online")]),
            (fmqp, faulty[30:]),
            (Sender(4, 1), odd),
            (Sender(6, 1), refused),
            (Sender(8, 1), aside),
        ],
    )
    second = [("lightmq/vpico-2/up", body) for _, body in stream("vpico-2", 60)]
    check = [("lightmq/vpico-2.check/up", b"#1 hello")]
    write_segment(journal, 1, [(lightmq, second), (Sender(5, 2, "vpico-2.check"), check)])


MESSAGES = 60 + 1 + 3 + len(REFUSED) + 2 + 61 + 1
NO_WILL = '<script>alert("no will")</script>'


def write_rig(rig: Path) -> None:
    """An older run that passed, and the latest: vpico-2's ping passed at its second attempt,
    its last will never came. The last line was cut by a kill."""
    _run(rig, "run-1", 1, [("vpico-1", "ping", 1, "passed", "")], {("vpico-1", 1): [5.0]})
    latest = [
        ("vpico-1", "ping", 1, "passed", ""),
        ("vpico-1", "will_abrupt", 1, "passed", ""),
        ("vpico-2", "ping", 1, "failed", "3 of 4 lost"),
        ("vpico-2", "ping", 2, "passed", ""),
        ("vpico-2", "will_abrupt", 1, "failed", NO_WILL),
    ]
    samples = {
        ("vpico-1", 1): [10.0 * number for number in range(1, 101)],
        ("vpico-2", 1): [99_999.0],
        ("vpico-2", 2): [2000.0, 4000.0],
    }
    folder = _run(rig, "run-2", 2, latest, samples)
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "run_id": "run-2", "ri')


def _run(
    rig: Path,
    run_id: str,
    minute: int,
    checks: list[tuple[str, str, int, str, str]],
    samples: dict[tuple[str, int], list[float]],
) -> Path:
    folder = rig / "date=2026-01-01" / "rig=desk" / f"run={run_id}"
    folder.mkdir(parents=True)
    clock = 0

    def leading(board: str) -> dict[str, Any]:
        nonlocal clock
        clock += 1
        about = {"model": "virtual-rp2040", "port": "/dev/pts/1", "virtual": True}
        shas = {"fw_sha": "f" * 64, "client_sha": "c" * 64}
        nothing = {"model": "", "port": "", "virtual": False, "fw_sha": "", "client_sha": ""}
        return {
            "schema_version": 1,
            "run_id": run_id,
            "rig": "desk",
            "ts": f"2026-01-01T00:{minute:02d}:00.{clock:06d}Z",
            "mono_ns": clock,
            "board_id": board,
            **({**about, **shas} if board else nothing),
        }

    def event(board: str, name: str, **fields: Any) -> dict[str, Any]:
        empty = {"step": "", "check": "", "attempt": 1, "outcome": "", "duration_s": None}
        return {**leading(board), "event": name, **empty, "message": "", **fields}

    events = [event("", "run_started")]
    for board, check, attempt, outcome, message in checks:
        told = {"outcome": outcome, "message": message, "duration_s": 1.5, "attempt": attempt}
        events.append(event(board, "check_finished", step="check", check=check, **told))
    ended = "failed" if run_id == "run-2" else "passed"
    events.append(event("", "run_finished", outcome=ended, duration_s=12.5))
    lines = []
    for (board, attempt), values in samples.items():
        rtt = {"check": "ping", "attempt": attempt, "metric": "rtt", "unit": "us"}
        lines += [
            {**leading(board), **rtt, "value": value, "seq": seq, "outcome": "passed"}
            for seq, value in enumerate(values)
        ]
    if run_id == "run-2":
        will = {"check": "will_abrupt", "attempt": 1, "metric": "will_delay", "unit": "ms"}
        lines.append({**leading("vpico-1"), **will, "value": 104.25, "seq": 0, "outcome": "passed"})
    for name, rows in (("events", events), ("samples", lines)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder
