"""UMQ's text messages to what they say, and back: ``['A' count ':'] command id ':' payload``."""

from dataclasses import dataclass
from typing import Final

from host_broker.wire.violation import Violation

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IS_DIGIT = frozenset(_DIGITS)
COMMANDS = frozenset("-HWFCBRETDUSX!")
# Requirements that what may have no attachments breaks by having some.
BARE = {"F": "R14", "-": "R16", "E": "R21", "!": "R21", "D": "R27", "U": "R29", "X": "A11"}
MAX_ID_DIGITS = 13

# Error codes (A13).
REJECTED, NO_CALLBACK, MALFORMED, NO_METHOD, NO_VERSION, NO_RPC, NO_ROUTE, LATER = range(1, 9)


@dataclass(frozen=True, slots=True)
class Message:
    """One text message: its command, its id, what follows, and how many attachments do."""

    command: str
    id: int
    payload: str
    attachments: int = 0


def spell_id(number: int) -> str:
    """Return a number in base 36, without leading zeros (A3)."""
    if number < 36:
        return _DIGITS[number]
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text


def read_id(text: str, *, lenient_case: bool = False, max_digits: int = MAX_ID_DIGITS) -> int | str:
    """Return what a number in base 36 is (empty: 0, A1), or why it is none."""
    if not text:
        return 0
    if lenient_case:
        text = text.upper() if text.isascii() else text
    if not _IS_DIGIT.issuperset(text):
        return f"{_shown(text)} is no number in base 36 (0-9, A-Z)"
    if len(text) > max_digits:
        return f"an id has {len(text)} digits, at most {max_digits} are read"
    return int(text, 36)


def read_message(
    text: str,
    *,
    lenient_case: bool = False,
    max_id_digits: int = MAX_ID_DIGITS,
    lenient_attachments: bool = False,
) -> Message | Violation:
    """Read one text message.

    ``lenient_attachments``: what may have no attachments may announce some. What it has of a
    callback or an attribute is read by ``read_callback`` and ``read_attribute``.
    """
    count = 0
    body = text
    if body[:1] == "A":
        head, separator, body = body[1:].partition(":")
        if not separator:
            return _fault("R1", text, "no ':' ends the number of attachments")
        announced = read_id(head, lenient_case=lenient_case, max_digits=max_id_digits)
        if isinstance(announced, str):
            return _fault("R5", text, announced)
        count = announced
        if body[:1] == "A":
            return _fault("R6", text, "the command inside of A is A")
    command = body[:1]
    if command not in COMMANDS or not command:
        return _fault("R1", text, "no command begins so" if body else "there is no command")
    digits, separator, payload = body[1:].partition(":")
    if not separator:
        return _fault("R1", text, "no ':' ends the id")
    number = read_id(digits, lenient_case=lenient_case, max_digits=max_id_digits)
    if isinstance(number, str):
        rule = "R2" if len(digits) <= max_id_digits else "umq.max_id_digits"
        return _fault(rule, text, number)
    if count and command in BARE and not lenient_attachments:
        return _fault(BARE[command], text, f"{command} has no attachments")
    return Message(command, number, payload, count)


def spell_message(command: str, id: int, payload: str, attachments: int = 0) -> str:
    """Spell one text message; ``-``, S and X without their id, which is not used (R35)."""
    announced = f"A{spell_id(attachments)}:" if attachments else ""
    number = "" if command in "-SX" else spell_id(id)
    return f"{announced}{command}{number}:{payload}"


def spell_error(code: int, text: str) -> str:
    """Spell the payload of F, and of the broker's E."""
    return f"{code} {text}"


def read_error(payload: str) -> tuple[int, str]:
    """Read that: the code, 0 if there is none, and the text."""
    code, _, text = payload.partition(" ")
    if code.isascii() and code.isdecimal() and len(code) <= 9:
        return int(code), text
    return 0, payload


def read_callback(
    payload: str, *, lenient_case: bool = False, max_id_digits: int = MAX_ID_DIGITS
) -> tuple[int, str] | Violation:
    """Read the payload of B: the callback's id, and its argument (R22)."""
    digits, separator, argument = payload.partition(":")
    if not separator:
        return _fault("R22", payload, "no ':' ends the callback's id")
    number = read_id(digits, lenient_case=lenient_case, max_digits=max_id_digits)
    if isinstance(number, str):
        return _fault("R22", payload, number)
    return number, argument


def read_attribute(payload: str) -> tuple[str, str] | Violation:
    """Read the payload of S: name and value, spaces belong to them (R32, A22)."""
    name, separator, value = payload.partition("=")
    if not separator:
        return _fault("R32", payload, "an attribute is NAME=VALUE")
    return name, value


def _fault(rule: str, text: str, reason: str) -> Violation:
    return Violation(rule, f"{reason}: {_shown(text)}", 0, fatal=True)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
