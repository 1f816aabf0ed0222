"""How ``motemq top`` shows a report: a table for a terminal, lines, JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from host_broker.cli.traffic import Order, Report, TopicRow
from host_broker.printable import json_text, printable

LINES_AROUND_ROWS = 6  # of a table: the summary, a gap, the head and its rule, the rest, a margin


_KEYS = (
    "q quit, sort by: r messages/s, b bytes/s, m messages, t topic; p pause",
    "q quit, sort: r rate, b bytes, m messages, t topic; p pause",
    "q quit, sort: r b m t, p pause",
)
_LEAST_TOPIC = 12  # columns
_FIGURES = 37  # columns of the three columns of figures and what is between columns


def table(url: str, report: Report, order: Order, note: str, width: int) -> Group:
    """A renderable of at most ``len(rows) + LINES_AROUND_ROWS`` lines and ``width`` columns;
    ``note`` is at the end."""
    grid = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, padding=(0, 1, 0, 0))
    for name, of in (("messages/s", "rate"), ("bytes/s", "bytes"), ("messages", "messages")):
        grid.add_column(_head(name, of, order), justify="right", no_wrap=True)
    topic = _head("topic", "topic", order)
    # Topics are what people look for: they get what they need, payloads what is left.
    longest = max([cell_len(_topic(row)) for row in report.rows], default=0)
    most = max(_LEAST_TOPIC, (width - _FIGURES) * 2 // 3)
    needed = min(max(longest, cell_len(topic)), most)
    grid.add_column(topic, no_wrap=True, overflow="ellipsis", width=needed, style="bold")
    grid.add_column("last payload", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in report.rows:
        cells = [_rate(row.messages_per_second), decimal(int(row.bytes_per_second))]
        cells += [f"{row.messages:,}", _topic(row), _preview(row)]
        # Text, not str: what others published must not be read as markup.
        grid.add_row(*map(Text, cells), style="" if row.messages_per_second else "dim")
    rest = _rest(report)
    foot = note or _fitting([", ".join(filter(None, (rest, keys))) for keys in _KEYS], width)
    summary = Text(_fitting(_summaries(url, report), width), no_wrap=True, overflow="ellipsis")
    style = "reverse" if note else "dim"
    return Group(summary, grid, Text(foot, style=style, no_wrap=True, overflow="ellipsis"))


def _fitting(texts: Sequence[str], width: int) -> str:
    """Return the first that is not too wide, else the last."""
    return next((text for text in texts if cell_len(text) <= width), texts[-1])


def _head(name: str, of: str, order: Order) -> str:
    return f"▾ {name}" if of == order else name


def lines(url: str, report: Report, width: int | None = None) -> str:
    """The same as text: a summary and one line per topic; lines of ``width`` columns at most."""
    now = _now()
    summaries = [f"{now} {summary}" for summary in _summaries(url, report)]
    text = [summaries[0] if width is None else _fitting(summaries, width)]
    for row in report.rows:
        rate, size = _rate(row.messages_per_second), decimal(int(row.bytes_per_second))
        text.append(f"{rate:>10}/s {size:>10}/s {row.messages:>10}  {_topic(row)}  {_preview(row)}")
    rest = _rest(report)
    if rest:
        text.append(rest)
    if width is not None:
        text = [_cut(line, width) for line in text]
    return "\n".join(text) + "\n"


def _cut(line: str, width: int) -> str:
    """Return as much of a line as there is room for."""
    return line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…"


def as_json(url: str, report: Report) -> str:
    """One line of JSON; rates in messages and payload bytes per second."""
    fields = {
        "ts": _now(),
        "url": url,
        "interval_s": round(report.interval_s, 6),
        "clients": report.clients,
        "broker_messages_per_second": report.broker_messages_per_second,
        "messages_per_second": round(report.messages_per_second, 3),
        "bytes_per_second": round(report.bytes_per_second, 3),
        "dropped": report.dropped,
        "topics": [
            {
                "topic": row.topic,
                "messages_per_second": round(row.messages_per_second, 3),
                "bytes_per_second": round(row.bytes_per_second, 3),
                "messages": row.messages,
                "last": _preview(row),
                "last_bytes": row.last_bytes,
            }
            for row in report.rows
        ],
        "topics_not_shown": report.topics - len(report.rows),
        "topics_forgotten": report.forgotten,
    }
    return json_text(fields) + "\n"


def _summary(url: str, report: Report) -> str:
    parts = [url]
    if report.clients is not None:
        parts.append(f"clients {report.clients}")
    if report.broker_messages_per_second is not None:
        parts.append(f"{report.broker_messages_per_second:,} messages/s sent to the broker")
    parts.append(f"{_rate(report.messages_per_second)} messages/s seen")
    parts.append(f"{decimal(int(report.bytes_per_second))}/s")
    parts.append(f"topics {report.topics:,}")
    if report.dropped:
        parts.append(_dropped(report.dropped))
    return ", ".join(parts)


def _summaries(url: str, report: Report) -> list[str]:
    """The same, and ever shorter."""
    seen = f"{_rate(report.messages_per_second)} msg/s seen"
    size = f"{decimal(int(report.bytes_per_second))}/s"
    sent = report.broker_messages_per_second
    parts = [
        url,
        *([] if report.clients is None else [f"{report.clients} clients"]),
        *([] if sent is None else [f"{sent:,} msg/s sent"]),
        seen,
        size,
        f"{report.topics:,} topics",
        *([_dropped(report.dropped)] if report.dropped else []),
    ]
    short = [part for part in parts if part != size]
    figures = [part for part in short[1:] if not part.endswith(" topics")]
    return [_summary(url, report), *map(", ".join, (parts, short, short[1:], figures))]


def _dropped(dropped: dict[str, dict[str, int]]) -> str:
    """What the broker dropped, by protocol."""
    said = [f"{name} {sum(reasons.values()):,}" for name, reasons in dropped.items()]
    return f"dropped: {' '.join(said)}"


def _rest(report: Report) -> str:
    parts = []
    if report.topics > len(report.rows):
        parts.append(f"{report.topics - len(report.rows):,} more topics are not shown")
    if report.forgotten:
        parts.append(f"{report.forgotten:,} long silent ones forgotten")
    return ", ".join(parts)


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"


def _topic(row: TopicRow) -> str:
    return printable(row.topic.encode())


def _preview(row: TopicRow) -> str:
    more = "…" if row.last_bytes > len(row.preview) else ""
    return printable(row.preview).replace("\t", " ") + more


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
