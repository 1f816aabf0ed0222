"""Programs of bindings (R38-R43): which messages of an exchange a queue wants.

``prefix:STR RULE?`` or ``exact:STR RULE?``. ``parse`` makes a tree of the text, ``spell`` the text
of a tree; ``compile_program`` makes what is asked for every message, and ``interpret`` is the same
in the plainest way, for tests. A11 to A14 say where this differs from fqd.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from host_broker.protocols.fq.functions import (
    BUILT_IN,
    MAX_ARGUMENTS,
    Argument,
    Functions,
    RouteFunction,
    find_function,
    signature_of,
)

MAX_ROUTE = 127  # bytes; a longer prefix begins no route
# Parentheses within each other. A message that is asked about costs as many nested calls, and a
# program that a person has written has less than ten.
MAX_NESTING = 64

Operator = Literal["&&", "||"]
Test = Callable[[bytes, bytes], bool]


class ProgramError(ValueError):
    """A program that cannot be compiled; the text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments: strings are bytes without NUL, numbers are floats."""

    name: str
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """Two rules of which both must pass, or one; both are always asked."""

    operator: Operator
    left: "Rule"
    right: "Rule"


Rule = Call | Operation
ALWAYS = Call("true")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A program as a tree. ``prefix``: what a route begins with, or (``exact``) is."""

    prefix: bytes
    exact: bool = False
    rule: Rule = ALWAYS


class Program:
    """A compiled program: call it with a route and a payload to know whether they fit.

    ``prefix``, ``exact``: what a route must begin with, or be. ``rule`` asks for the rest; None: it
    is ``true()``. ``text`` is what it was compiled from.
    """

    __slots__ = ("exact", "prefix", "rule", "text")

    def __init__(self, text: bytes, prefix: bytes, exact: bool, rule: Test | None) -> None:
        self.text = text
        self.prefix = prefix
        self.exact = exact
        self.rule = rule

    def __call__(self, route: bytes, payload: bytes) -> bool:
        """Whether a message fits."""
        if route != self.prefix if self.exact else not route.startswith(self.prefix):
            return False
        return self.rule is None or self.rule(route, payload)

    def __repr__(self) -> str:
        """Show the text."""
        return f"Program({self.text!r})"


def compile_program(text: bytes, functions: Functions = BUILT_IN) -> Program:
    """Compile a program; ``functions`` are those that it may call.

    ``ProgramError`` says what is wrong with it.
    """
    parsed = parse(text)
    rule = None if parsed.rule == ALWAYS else _compile(parsed.rule, functions)
    return Program(text, parsed.prefix, parsed.exact, rule)


def interpret(parsed: Parsed, functions: Functions, route: bytes, payload: bytes) -> bool:
    """Whether a message fits, by walking the tree. ``ProgramError`` for a function that is not
    among ``functions``."""
    fits = route == parsed.prefix if parsed.exact else route.startswith(parsed.prefix)
    return fits and _ask(parsed.rule, functions, route, payload)


def parse(text: bytes) -> Parsed:
    """Make a tree of a program's text; ``ProgramError`` if it is none.

    Which functions there are is not looked at.
    """
    return _Reader(text).program()


def spell(parsed: Parsed) -> bytes:
    """Return a text of which ``parse`` makes the same tree."""
    kind = b"exact:" if parsed.exact else b"prefix:"
    prefix = parsed.prefix.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\0", b"\\x00")
    return b'%s"%s" %s' % (kind, prefix, _spell_rule(parsed.rule))


# ---- what is asked for every message ----


def _compile(rule: Rule, functions: Functions) -> Test:
    if isinstance(rule, Call):
        test, arguments = _find(rule, functions).test, rule.arguments
        if len(arguments) == 1:
            (only,) = arguments
            return lambda route, payload: bool(test(route, payload, only))
        return lambda route, payload: bool(test(route, payload, *arguments))
    left, right = _compile(rule.left, functions), _compile(rule.right, functions)
    # Not "and" and "or": both are asked (R42), as functions may keep account of what they see.
    if rule.operator == "&&":
        return lambda route, payload: left(route, payload) & right(route, payload)
    return lambda route, payload: left(route, payload) | right(route, payload)


def _ask(rule: Rule, functions: Functions, route: bytes, payload: bytes) -> bool:
    if isinstance(rule, Call):
        return bool(_find(rule, functions).test(route, payload, *rule.arguments))
    left = _ask(rule.left, functions, route, payload)
    right = _ask(rule.right, functions, route, payload)
    return left and right if rule.operator == "&&" else left or right


def _find(call: Call, functions: Functions) -> RouteFunction:
    found = find_function(functions, call.name, call.arguments)
    if found is None:
        known = sorted({f"{each.name}({each.signature})" for each in functions.values()})
        raise ProgramError(
            f"there is no function {call.name}({signature_of(call.arguments)}); there are "
            f"{', '.join(known)}, with s for a string, b for a boolean, d for a number"
        )
    return found


# ---- text ----

_SPACE = re.compile(rb"[ \t\n\v\f\r]*")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_HEX = re.compile(rb"[0-9A-Fa-f]{2}")
_WORD_ENDS = re.compile(rb"(?![A-Za-z0-9_])")
# What strtod() reads; the order makes it read as much as it can.
_HEX_NUMBER = re.compile(
    rb"[+-]?0[xX](?:[0-9A-Fa-f]+\.?[0-9A-Fa-f]*|\.[0-9A-Fa-f]+)(?:[pP][+-]?[0-9]+)?"
)
_NUMBER = re.compile(
    rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:infinity|inf|nan))"
)
# In arguments; any other backslash stays as it is, with what follows it (A14).
_ESCAPES = {ord("\\"): b"\\", ord('"'): b'"', ord("0"): b"\0"} | {
    ord(letter): byte for letter, byte in (("n", b"\n"), ("r", b"\r"), ("t", b"\t"))
}
_SPELLED = {byte[0]: b"\\" + bytes([letter]) for letter, byte in _ESCAPES.items() if byte != b"\0"}


def _spell_rule(rule: Rule) -> bytes:
    if isinstance(rule, Call):
        arguments = b", ".join(_spell_argument(each) for each in rule.arguments)
        return b"%s(%s)" % (rule.name.encode(), arguments)
    left, right = _spell_rule(rule.left), _spell_rule(rule.right)
    return b"(%s %s %s)" % (left, rule.operator.encode(), right)


def _spell_argument(argument: Argument) -> bytes:
    if isinstance(argument, bytes):
        return b'"%s"' % b"".join(_SPELLED.get(byte) or bytes([byte]) for byte in argument)
    if isinstance(argument, bool):
        return b"true" if argument else b"false"
    return repr(argument).encode()


class _Reader:
    """Reads a program from left to right; ``_at`` is the byte to read next."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    def program(self) -> Parsed:
        """Read all of it."""
        if b"\0" in self._text:
            raise ProgramError(f"byte {self._text.index(0)} of the program is NUL; write \\x00")
        if self._text.startswith(b"prefix:"):
            exact, self._at = False, len(b"prefix:")
        elif self._text.startswith(b"exact:"):
            exact, self._at = True, len(b"exact:")
        else:
            raise ProgramError(
                f"a program begins with prefix: or exact:, this one with {self._text[:16]!r}"
            )
        prefix = self._prefix()
        if len(prefix) > MAX_ROUTE:
            raise ProgramError(
                f"the prefix has {len(prefix)} bytes, and a route at most {MAX_ROUTE}"
            )
        self._skip_space()
        if self._at == len(self._text):
            return Parsed(prefix, exact)
        rule = self._rule(0)
        self._skip_space()
        if self._at < len(self._text):
            raise self._expected("the end")
        return Parsed(prefix, exact, rule)

    def _prefix(self) -> bytes:
        """Read a string that is quoted, or ends with a space or the text."""
        text, end = self._text, len(self._text)
        begin = self._at
        quoted = text.startswith(b'"', begin)
        stop = b'"' if quoted else b" "
        at = begin + quoted
        found = bytearray()
        while at < end and text[at] != stop[0]:
            if text[at] != ord("\\") or at + 1 == end:
                found.append(text[at])
                at += 1
            elif text[at + 1] == ord("x") and _HEX.match(text, at + 2):
                found.append(int(text[at + 2 : at + 4], 16))
                at += 4
            else:
                found.append(text[at + 1])
                at += 2
        if quoted and at == end:
            raise ProgramError(f"the string that begins at byte {begin} does not end")
        self._at = min(at + 1, end)
        return bytes(found)

    def _rule(self, depth: int) -> Rule:
        self._skip_space()
        if not self._take(b"("):
            return self._call()
        if depth == MAX_NESTING:
            raise ProgramError(
                f"more than {MAX_NESTING} parentheses within each other at byte {self._at - 1}"
            )
        left = self._rule(depth + 1)
        self._skip_space()
        if self._take(b")"):
            return left  # (RULE), which fqd has in its grammar and cannot read (A11)
        operator: Operator
        if self._take(b"&&"):
            operator = "&&"
        elif self._take(b"||"):
            operator = "||"
        else:
            raise self._expected("&&, || or )")
        right = self._rule(depth + 1)
        self._skip_space()
        if not self._take(b")"):
            raise self._expected(f") after the two sides of {operator}")
        return Operation(operator, left, right)

    def _call(self) -> Call:
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self._expected("a function or (")
        self._at = name.end()
        self._skip_space()
        if not self._take(b"("):
            raise self._expected("( after the function's name")
        arguments: list[Argument] = []
        self._skip_space()
        while not self._take(b")"):
            if arguments:
                if not self._take(b","):
                    raise self._expected(", or )")
                self._skip_space()
            if len(arguments) == MAX_ARGUMENTS:
                raise ProgramError(
                    f"{name[0].decode()} is called with more than {MAX_ARGUMENTS} arguments"
                )
            arguments.append(self._argument())
            self._skip_space()
        return Call(name[0].decode(), tuple(arguments))

    def _argument(self) -> Argument:
        if self._text.startswith(b'"', self._at):
            return self._string()
        for word, value in ((b"true", True), (b"false", False)):
            end = self._at + len(word)
            if self._text.startswith(word, self._at) and _WORD_ENDS.match(self._text, end):
                self._at = end
                return value
        return self._number()

    def _number(self) -> float:
        found = _HEX_NUMBER.match(self._text, self._at)
        is_hex = found is not None
        if found is None:
            found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._expected("a string in quotes, true, false or a number")
        self._at = found.end()
        text = found[0].decode()
        try:
            number = float.fromhex(text) if is_hex else float(text)
        except OverflowError:  # strtod() says infinity, as float() does for decimal ones
            number = -math.inf if text.startswith("-") else math.inf
        return math.nan if math.isnan(number) else number

    def _string(self) -> bytes:
        """Read an argument in quotes. A NUL ends it, as all are C strings in fqd."""
        text, end = self._text, len(self._text)
        begin, at = self._at, self._at + 1
        found = bytearray()
        while at < end and text[at] != ord('"'):
            if text[at] == ord("\\") and at + 1 < end:
                found += _ESCAPES.get(text[at + 1]) or text[at : at + 2]
                at += 2
            else:
                found.append(text[at])
                at += 1
        if at == end:
            raise ProgramError(f"the string that begins at byte {begin} does not end")
        self._at = at + 1
        return bytes(found.partition(b"\0")[0])

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self._at)
        if space is not None:
            self._at = space.end()

    def _take(self, word: bytes) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _expected(self, what: str) -> ProgramError:
        rest = self._text[self._at : self._at + 16]
        found = f"there is {rest!r}" if rest else "the program ends"
        return ProgramError(f"expected {what} at byte {self._at}, where {found}")
