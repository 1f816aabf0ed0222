"""Programs of fq's bindings: what holds for all of them."""

import math
import re

from hypothesis import example, given
from hypothesis import strategies as st

from host_broker.protocols.fq.functions import BUILT_IN, MAX_ARGUMENTS, RouteFunction
from host_broker.protocols.fq.programs import (
    MAX_ROUTE,
    Call,
    Operation,
    Parsed,
    ProgramError,
    Rule,
    compile_program,
    interpret,
    parse,
    spell,
)

_without_nul = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b""))
_numbers = st.floats().map(lambda number: math.nan if math.isnan(number) else number)
_arguments = st.lists(st.one_of(_without_nul, st.booleans(), _numbers), max_size=MAX_ARGUMENTS).map(
    tuple
)
_calls = st.builds(
    Call, st.from_regex(re.compile("[A-Za-z_][A-Za-z0-9_]{0,8}"), fullmatch=True), _arguments
)


def _rules(calls: st.SearchStrategy[Call]) -> st.SearchStrategy[Rule]:
    return st.recursive(
        calls,
        lambda inner: st.builds(Operation, st.sampled_from(["&&", "||"]), inner, inner),
        max_leaves=12,
    )


def _programs(calls: st.SearchStrategy[Call]) -> st.SearchStrategy[Parsed]:
    prefixes = st.one_of(st.binary(max_size=MAX_ROUTE), st.sampled_from([b"", b"a", b"ab"]))
    return st.builds(Parsed, prefixes, st.booleans(), _rules(calls))


# Calls that can be answered: of the built-in functions, and of two that take all there is.
_EVEN = RouteFunction(
    "even", "VA", lambda route, payload, *given: len(payload + repr(given).encode()) % 2 == 0
)
_LONGER = RouteFunction("longer", "sd", lambda route, payload, text, n: len(payload + text) > n)
_FUNCTIONS = {**BUILT_IN, _EVEN.key: _EVEN, _LONGER.key: _LONGER}
_letters = st.text("abc", max_size=3).map(str.encode)
_known_calls = st.one_of(
    st.just(Call("true")),
    st.builds(
        lambda name, text: Call(name, (text,)),
        st.sampled_from(["route_contains", "payload_prefix", "payload_contains"]),
        _letters,
    ),
    st.builds(lambda given: Call("even", given), _arguments),
    st.builds(lambda text, n: Call("longer", (text, n)), _letters, st.floats(0, 6)),
)

# What programs are made of, so that a fuzzer comes far.
_PIECES = [
    b"prefix:", b"exact:", b'"', b"(", b")", b"&&", b"||", b",", b" ", b"\t", b"\\", b"\\x4",
    b"\\x41", b"true", b"false", b"true()", b"route_contains", b"0x", b"1e", b"-", b"nan", b"inf",
    b".", b"5", b"a", b"\0", b"\xff",
]  # fmt: skip
_garbage = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(_PIECES), max_size=20).map(b"".join),
    st.lists(st.sampled_from(_PIECES), max_size=20).map(lambda parts: b"prefix:" + b"".join(parts)),
)


@given(_programs(_calls))
@example(Parsed(b'\0\\"x41 ', True, Call("f", (b'\\"\\x41\n\r\t', -0.0, 1e-300, True))))
@example(Parsed(b"", False, Call("f", (1.0, True, b"", math.nan, math.inf))))
def test_what_is_spelled_is_read_again(program: Parsed) -> None:
    """R38, R42, A14: parse after spell is the identity; 1.0 and true are told apart."""
    assert repr(parse(spell(program))) == repr(program)


@given(_programs(_known_calls), _letters, _letters)
def test_compiled_is_interpreted(program: Parsed, route: bytes, payload: bytes) -> None:
    """R41, R42: a compiled program says what its tree says."""
    compiled = compile_program(spell(program), _FUNCTIONS)
    assert compiled(route, payload) is interpret(program, _FUNCTIONS, route, payload)
    fits = route == program.prefix if program.exact else route.startswith(program.prefix)
    if fits and compiled.rule is not None:
        assert compiled.rule(route, payload) is compiled(route, payload)


@given(_programs(_known_calls), st.data())
def test_spaces_between_words_mean_nothing(program: Parsed, data: st.DataObject) -> None:
    """R42: any white space may stand between the words of a rule."""
    head, _, rule = spell(Parsed(b"", program.exact, program.rule)).partition(b" ")
    words = re.findall(rb'"(?:\\.|[^"\\])*"|&&|\|\||[(),]|[^\s(),"&|]+', rule)
    spaces = st.text(" \t\n\v\f\r", max_size=2).map(str.encode)
    spread = b"".join(word + data.draw(spaces) for word in words)
    assert repr(parse(head + b" " + spread).rule) == repr(program.rule)


@given(_garbage)
def test_any_bytes_are_a_program_or_told_why_not(text: bytes) -> None:
    """R17: nothing but a ``ProgramError`` comes of bytes, and what is read can be spelled."""
    try:
        program = parse(text)
    except ProgramError as error:
        assert str(error)
        return
    assert repr(parse(spell(program))) == repr(program)
    try:
        compile_program(text, _FUNCTIONS)(b"route", b"payload")
    except ProgramError as error:
        assert "no function" in str(error)


@given(_programs(_known_calls), st.data())
def test_a_program_that_is_cut_is_none_or_another_one(program: Parsed, data: st.DataObject) -> None:
    """R17: nothing of a program that is cut short raises anything else."""
    text = spell(program)
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        parse(cut)
    except ProgramError:
        assert cut != text
