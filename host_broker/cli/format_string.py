"""The format strings of ``motemq sub --format``: those of mosquitto_sub, as far as FMQP has it."""

import re
from collections.abc import Callable
from datetime import datetime

from host_broker.cli import message_format
from host_broker.cli.listening import Heard
from host_broker.cli.message_format import Format, arrival_ns
from host_broker.cli.printable import printable

# A message, and when it arrived: nanoseconds since 1970.
_Piece = Callable[[Heard, int], str]

_SEQUENCE = re.compile(
    r"%(?P<flag>[-0]?)(?P<width>\d{0,4})(?:\.(?P<most>\d{1,4}))?(?P<field>[^-.\d])"
    r"|@(?P<time>.)|\\(?P<escape>.)|(?P<plain>[^%@\\]+)|(?P<wrong>.)",
    re.DOTALL,
)
_ESCAPES = {
    "\\": "\\", "0": "\0", "a": "\a", "e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_TIMES = "aAbBcCdDeFgGHIjklmMnNprRsStTuUVwWxXyYzZ"
_FIELDS: dict[str, _Piece] = {
    "t": lambda heard, at_ns: printable(heard.topic.encode()),
    "p": lambda heard, at_ns: message_format.text(heard),
    "x": lambda heard, at_ns: heard.payload.hex(),
    "X": lambda heard, at_ns: heard.payload.hex().upper(),
    "l": lambda heard, at_ns: str(len(heard.payload)),
    "r": lambda heard, at_ns: str(int(heard.kept)),
    "w": lambda heard, at_ns: str(int(heard.will)),
    "j": lambda heard, at_ns: message_format.as_json(heard).decode().rstrip("\n"),
    "U": lambda heard, at_ns: "{}.{:09d}".format(*divmod(at_ns, 10**9)),
    "I": lambda heard, at_ns: _local(at_ns).strftime("%Y-%m-%dT%H:%M:%S%z"),
}


class FormatError(ValueError):
    """A format string that cannot be; the text says what is wrong with it."""


def compiled(format: str) -> Format:
    """Return what writes a message as ``format`` says, and a line end. Raises ``FormatError``."""
    pieces = [_piece(match) for match in _SEQUENCE.finditer(format)]

    def write(heard: Heard) -> bytes:
        at_ns = arrival_ns(heard)  # once, so that all of a line tells the same time
        return ("".join(piece(heard, at_ns) for piece in pieces) + "\n").encode()

    return write


def _piece(match: re.Match[str]) -> _Piece:
    if match["wrong"]:
        raise FormatError(f"'{match.string[match.start() :]}' is no sequence of a format")
    if match["plain"]:
        plain = match["plain"]
        return lambda heard, at_ns: plain
    if match["escape"]:
        if match["escape"] not in _ESCAPES:
            known = " ".join("\\" + letter for letter in _ESCAPES)
            raise FormatError(f"there is no '{match[0]}'; there are: {known}")
        escaped = _ESCAPES[match["escape"]]
        return lambda heard, at_ns: escaped
    return _time(match["time"]) if match["time"] else _field(match)


def _time(letter: str) -> _Piece:
    if letter == "@":
        return lambda heard, at_ns: "@"
    if letter == "N":
        return lambda heard, at_ns: f"{at_ns % 10**9:09d}"
    if letter not in _TIMES:
        raise FormatError(f"there is no '@{letter}'; @X is %X of strftime, @N nanoseconds")
    return lambda heard, at_ns: _local(at_ns).strftime(f"%{letter}")


def _field(match: re.Match[str]) -> _Piece:
    letter, flag, width = match["field"], match["flag"], int(match["width"] or 0)
    most = int(match["most"]) if match["most"] else None
    if letter == "%":
        return lambda heard, at_ns: "%"
    if letter not in _FIELDS:
        raise FormatError(f"there is no '{match[0]}'; there are: %{' %'.join(sorted(_FIELDS))} %%")
    field = _FIELDS[letter]
    return lambda heard, at_ns: _wide(field(heard, at_ns)[:most], flag, width)


def _local(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns // 10**9).astimezone()


def _wide(text: str, flag: str, width: int) -> str:
    if flag == "-":
        return text.ljust(width)
    return text.zfill(width) if flag == "0" else text.rjust(width)
