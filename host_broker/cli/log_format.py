"""How the broker's log is written: lines for people, or one JSON object a line for programs.

What is logged has what peers have said in it, so it is made harmless here, whoever logs it.
"""

import datetime
import json
import logging
from typing import Literal

from host_broker.printable import printable, printable_lines

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    """``broker: MESSAGE``, and a traceback below it where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = "broker: " + printable(record.getMessage())
        if record.exc_info:
            text += "\n" + printable_lines(self.formatException(record.exc_info))
        return text


class JsonFormatter(logging.Formatter):
    """One object a line: ``ts`` (UTC), ``level``, ``logger``, ``message``, ``pid``; ``exception``
    where there is a traceback; and what ``extra={"fields": {…}}`` says."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        document: dict[str, object] = {
            "ts": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": printable(record.getMessage()),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            for name, value in fields.items():
                document.setdefault(name, printable(value) if isinstance(value, str) else value)
        if record.exc_info:
            document["exception"] = printable_lines(self.formatException(record.exc_info))
        return json.dumps(document, default=str)


def set_up_logging(how: LogFormat, *, verbose: bool) -> None:
    """Write the log to stderr from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if how == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose else logging.WARNING)
