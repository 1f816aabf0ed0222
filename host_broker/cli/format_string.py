"""The format strings of ``motemq sub --format``: those of mosquitto_sub, as far as FMQP has it."""

import re
from collections.abc import Callable
from datetime import datetime

from host_broker.cli import message_format
from host_broker.cli.message_format import Format, arrival_ns
from host_broker.cli.property_option import properties_text
from host_broker.client import Message
from host_broker.printable import printable

# A message, and when it arrived: nanoseconds since 1970.
_Piece = Callable[[Message, int], str]

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
    "t": lambda message, at_ns: printable(message.topic.encode()),
    "p": lambda message, at_ns: message_format.text(message),
    "x": lambda message, at_ns: message.payload.hex(),
    "X": lambda message, at_ns: message.payload.hex().upper(),
    "l": lambda message, at_ns: str(len(message.payload)),
    "P": lambda message, at_ns: properties_text(message),
    "r": lambda message, at_ns: str(int(message.kept)),
    "w": lambda message, at_ns: str(int(message.will)),
    "j": lambda message, at_ns: message_format.as_json(message).decode().rstrip("\n"),
    "U": lambda message, at_ns: "{}.{:09d}".format(*divmod(at_ns, 10**9)),
    "I": lambda message, at_ns: _local(at_ns).strftime("%Y-%m-%dT%H:%M:%S%z"),
}


class FormatError(ValueError):
    """A format string that cannot be; the text says what is wrong with it."""


def compiled(format: str) -> Format:
    """Return what writes a message as ``format`` says, and a line end. Raises ``FormatError``."""
    pieces = [_piece(match) for match in _SEQUENCE.finditer(format)]

    def write(message: Message) -> bytes:
        at_ns = arrival_ns(message)  # once, so that all of a line tells the same time
        return ("".join(piece(message, at_ns) for piece in pieces) + "\n").encode()

    return write


def _piece(match: re.Match[str]) -> _Piece:
    if match["wrong"]:
        raise FormatError(f"'{match.string[match.start() :]}' is no sequence of a format")
    if match["plain"]:
        plain = match["plain"]
        return lambda message, at_ns: plain
    if match["escape"]:
        if match["escape"] not in _ESCAPES:
            known = " ".join("\\" + letter for letter in _ESCAPES)
            raise FormatError(f"there is no '{match[0]}'; there are: {known}")
        escaped = _ESCAPES[match["escape"]]
        return lambda message, at_ns: escaped
    return _time(match["time"]) if match["time"] else _field(match)


def _time(letter: str) -> _Piece:
    if letter == "@":
        return lambda message, at_ns: "@"
    if letter == "N":
        return lambda message, at_ns: f"{at_ns % 10**9:09d}"
    if letter not in _TIMES:
        raise FormatError(f"there is no '@{letter}'; @X is %X of strftime, @N nanoseconds")
    return lambda message, at_ns: _local(at_ns).strftime(f"%{letter}")


def _field(match: re.Match[str]) -> _Piece:
    letter, flag, width = match["field"], match["flag"], int(match["width"] or 0)
    most = int(match["most"]) if match["most"] else None
    if letter == "%":
        return lambda message, at_ns: "%"
    if letter not in _FIELDS:
        raise FormatError(f"there is no '{match[0]}'; there are: %{' %'.join(sorted(_FIELDS))} %%")
    field = _FIELDS[letter]
    return lambda message, at_ns: _wide(field(message, at_ns)[:most], flag, width)


def _local(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns // 10**9).astimezone()


def _wide(text: str, flag: str, width: int) -> str:
    if flag == "-":
        return text.ljust(width)
    return text.zfill(width) if flag == "0" else text.rjust(width)
