"""The format strings of ``motemq sub --format``: those of mosquitto_sub, as far as FMQP has it."""

import re
from collections.abc import Callable
from datetime import datetime

from host_broker.cli import message_format
from host_broker.cli.listening import Heard
from host_broker.cli.message_format import Format, arrival_ns
from host_broker.cli.printable import printable

_Piece = Callable[[Heard, datetime], str]

_SEQUENCE = re.compile(
    r"%(?P<flag>[-0]?)(?P<width>\d{0,4})(?:\.(?P<most>\d{1,4}))?(?P<field>[^-.\d])"
    r"|@(?P<time>.)|\\(?P<escape>.)|(?P<plain>[^%@\\]+)|(?P<wrong>.)",
    re.DOTALL,
)
_ESCAPES = {
    "\\": "\\", "0": "\0", "a": "\a", "e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_TIMES = "aAbBcCdDeFgGHIjklmMnNprRsStTuUVwWxXyYzZ"
_FIELDS: dict[str, Callable[[Heard], str]] = {
    "t": lambda heard: printable(heard.topic.encode()),
    "p": message_format.text,
    "x": lambda heard: heard.payload.hex(),
    "X": lambda heard: heard.payload.hex().upper(),
    "l": lambda heard: str(len(heard.payload)),
    "r": lambda heard: str(int(heard.kept)),
    "w": lambda heard: str(int(heard.will)),
    "j": lambda heard: message_format.as_json(heard).decode().rstrip("\n"),
    "U": lambda heard: "{}.{:09d}".format(*divmod(arrival_ns(heard), 10**9)),
}


class FormatError(ValueError):
    """A format string that cannot be; the text says what is wrong with it."""


def compiled(format: str) -> Format:
    """Return what writes a message as ``format`` says, and a line end. Raises ``FormatError``."""
    pieces = [_piece(match) for match in _SEQUENCE.finditer(format)]

    def write(heard: Heard) -> bytes:
        moment = datetime.fromtimestamp(arrival_ns(heard) / 1e9).astimezone()
        return ("".join(piece(heard, moment) for piece in pieces) + "\n").encode()

    return write


def _piece(match: re.Match[str]) -> _Piece:
    if match["wrong"]:
        raise FormatError(f"'{match.string[match.start() :]}' is no sequence of a format")
    if match["plain"]:
        plain = match["plain"]
        return lambda heard, moment: plain
    if match["escape"]:
        if match["escape"] not in _ESCAPES:
            known = " ".join("\\" + letter for letter in _ESCAPES)
            raise FormatError(f"there is no '{match[0]}'; there are: {known}")
        escaped = _ESCAPES[match["escape"]]
        return lambda heard, moment: escaped
    return _time(match["time"]) if match["time"] else _field(match)


def _time(letter: str) -> _Piece:
    if letter == "@":
        return lambda heard, moment: "@"
    if letter == "N":
        return lambda heard, moment: f"{arrival_ns(heard) % 10**9:09d}"
    if letter not in _TIMES:
        raise FormatError(f"there is no '@{letter}'; @X is %X of strftime, @N nanoseconds")
    return lambda heard, moment: moment.strftime(f"%{letter}")


def _field(match: re.Match[str]) -> _Piece:
    letter, flag, width = match["field"], match["flag"], int(match["width"] or 0)
    most = int(match["most"]) if match["most"] else None
    if letter == "%":
        return lambda heard, moment: "%"
    if letter == "I":
        return lambda heard, moment: _wide(moment.strftime("%Y-%m-%dT%H:%M:%S%z"), flag, width)
    if letter not in _FIELDS:
        raise FormatError(
            f"there is no '{match[0]}'; there are: %{' %'.join(sorted(_FIELDS))} %I %%"
        )
    field = _FIELDS[letter]
    return lambda heard, moment: _wide(field(heard)[:most], flag, width)


def _wide(text: str, flag: str, width: int) -> str:
    if flag == "-":
        return text.ljust(width)
    return text.zfill(width) if flag == "0" else text.rjust(width)
