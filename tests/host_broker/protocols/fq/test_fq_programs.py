"""Programs of fq's bindings: what they mean, and what is wrong with those that mean nothing."""

import math
from collections import Counter
from collections.abc import Callable

import pytest

from host_broker.protocols.fq.functions import (
    BUILT_IN,
    MAX_ARGUMENTS,
    RouteFunction,
    broker_functions,
)
from host_broker.protocols.fq.programs import (
    ALWAYS,
    MAX_NESTING,
    MAX_ROUTE,
    Call,
    Operation,
    Parsed,
    ProgramError,
    compile_program,
    interpret,
    parse,
    spell,
)

_NO_CHANCE = broker_functions(lambda: 0, own=())


def _arguments(text: bytes) -> tuple[object, ...]:
    rule = parse(b"prefix: f(" + text + b")").rule
    assert isinstance(rule, Call)
    return rule.arguments


@pytest.mark.parametrize(
    ("text", "prefix", "exact"),
    [
        (b"prefix:", b"", False),
        (b'prefix:""', b"", False),
        (b"prefix:a.b", b"a.b", False),
        (b'prefix:"a.b"', b"a.b", False),
        (b"prefix:a.b ", b"a.b", False),
        (b'prefix:"a b"\t\n ', b"a b", False),
        (b"exact:a.b", b"a.b", True),
        (b'exact:"a.b"', b"a.b", True),
        (b"exact:", b"", True),
        (b'prefix:a"b', b'a"b', False),
        (b"prefix:a\tb", b"a\tb", False),  # only a space ends one without quotes
        (b"prefix:\xff\xfe", b"\xff\xfe", False),
        (b'prefix:"a\\"b"', b'a"b', False),
        (b'prefix:"a\\\\"', b"a\\", False),
        (b"prefix:a\\ b", b"a b", False),
        (b'prefix:"\\x41\\x00\\xfF"', b"A\0\xff", False),
        (b'prefix:"\\x4"', b"x4", False),
        (b'prefix:"\\n"', b"n", False),
        (b"prefix:a\\", b"a\\", False),
    ],
)
def test_a_program_begins_with_a_prefix_or_a_whole_route(
    text: bytes, prefix: bytes, exact: bool
) -> None:
    """R38, A14: strings in quotes or up to a space; a backslash takes the next byte as it is."""
    assert parse(text) == Parsed(prefix, exact, ALWAYS)
    program = compile_program(text)
    assert (program.prefix, program.exact, program.rule) == (prefix, exact, None)
    assert program.text == text


@pytest.mark.parametrize("text", [b"", b"prefix", b"foo:x", b" prefix:x", b"Prefix:x", b"true()"])
def test_every_program_begins_so(text: bytes) -> None:
    """R38: every program starts with prefix: or exact:."""
    with pytest.raises(ProgramError, match="begins with prefix: or exact:"):
        compile_program(text)


@pytest.mark.parametrize("route", [b"", b"a", b"\0", b"any.route/at all", b"x" * 127])
def test_an_empty_prefix_matches_every_route(route: bytes) -> None:
    """R39: ``prefix:`` matches all messages."""
    assert compile_program(b"prefix:")(route, b"")
    assert compile_program(b'prefix:"" true()')(route, b"payload")


def test_matching_is_on_the_route() -> None:
    """R40: a prefix is of the route's bytes, an exact string is all of it; payloads are nothing."""
    prefix, exact = compile_program(b'prefix:"a.b"'), compile_program(b"exact:a.b")
    assert [prefix(route, b"a.b") for route in (b"a.b", b"a.bc", b"a.", b"xa.b", b"A.B")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [exact(route, b"a.b") for route in (b"a.b", b"a.bc", b"a.", b"")] == [
        True,
        False,
        False,
        False,
    ]


def test_the_five_functions() -> None:
    """R41, A21: true, route_contains, payload_prefix, payload_contains and sample."""

    def ask(rule: bytes, route: bytes = b"r.middle.e", payload: bytes = b"begin-end") -> bool:
        return compile_program(b"prefix: " + rule, _NO_CHANCE)(route, payload)

    assert ask(b"true()")
    assert ask(b'route_contains("middle")')
    assert not ask(b'route_contains("begin")')
    assert ask(b'payload_prefix("begin")')
    assert not ask(b'payload_prefix("end")')
    assert ask(b'payload_contains("n-e")')
    assert not ask(b'payload_contains("middle")')
    assert ask(b"sample(0.5)")


def test_functions_take_an_empty_string() -> None:
    """A13: an empty argument, which fqd cannot read, is in everything."""
    for name in (b"route_contains", b"payload_prefix", b"payload_contains"):
        assert compile_program(b'prefix: %s("")' % name)(b"", b"")


@pytest.mark.parametrize(
    ("drawn", "probability", "passes"),
    [
        (0, "0", False),
        (0, "0.0000000001", True),
        (0x8000, "0.5", False),
        (0x7FFF, "0.5", True),
        (0xFFFF, "1", True),
        (0xFFFF, "inf", True),
        (0, "nan", False),
        (0, "-1", False),
    ],
)
def test_sample_passes_with_a_probability(drawn: int, probability: str, passes: bool) -> None:
    """R41: sample(d) passes when what is drawn from 0 to 1 is below d."""
    functions = broker_functions(lambda: drawn, own=())
    program = compile_program(f"prefix: sample({probability})".encode(), functions)
    assert program(b"r", b"p") is passes


def test_sample_needs_somebody_who_draws() -> None:
    """R41: without randomness there is no sample, and nobody is let believe there were."""
    with pytest.raises(ProgramError, match=r"no function sample\(d\)"):
        compile_program(b"prefix: sample(0.5)")


def test_rules_are_joined_in_parentheses() -> None:
    """R42: &&, || and parentheses, to any sensible depth."""
    text = b'prefix:a ((payload_prefix("1") && payload_contains("2")) || route_contains("z"))'
    program = compile_program(text)
    assert program(b"a", b"12")
    assert program(b"az", b"")
    assert not program(b"a", b"1")
    assert not program(b"a", b"21")
    assert not program(b"bz", b"12")


def test_a_rule_may_be_in_parentheses_alone() -> None:
    """A11, R42: (RULE) is in fq's grammar."""
    assert parse(b"prefix: (true())") == parse(b"prefix: ((true()))") == Parsed(b"")
    assert compile_program(b'prefix: ((payload_prefix("a")) && (true()))')(b"", b"a")


@pytest.mark.parametrize("operator", [b"&&", b"||"])
def test_both_sides_are_asked(operator: bytes) -> None:
    """R42: fqd asks both operands whatever the first one says, and so do we."""
    asked: Counter[str] = Counter()

    def function(name: str, says: bool) -> RouteFunction:
        def test(route: bytes, payload: bytes) -> bool:
            asked[name] += 1
            return says

        return RouteFunction(name, "", test)

    functions = {each.key: each for each in (function("yes", True), function("no", False))}
    for left, right in ((b"yes", b"no"), (b"no", b"yes")):
        program = compile_program(b"prefix: (%s() %s %s())" % (left, operator, right), functions)
        assert program(b"", b"") is (operator == b"||")
    assert asked == {"yes": 2, "no": 2}


@pytest.mark.parametrize(
    "text",
    [
        b'prefix:"sport.nfl." payload_prefix("SCORE")',
        b'prefix:"sport.nfl."payload_prefix("SCORE")',
        b'prefix:sport.nfl. \t payload_prefix ( "SCORE" )\n',
        b'prefix:"" (route_contains("nfl")&&(payload_contains("OR")||payload_prefix("x")))',
        b'exact:"sport.nfl.scores" (true() && payload_prefix("SCORE"))',
    ],
)
def test_programs_as_people_write_them(text: bytes) -> None:
    """R43: examples of the documentation's kinds, with and without spaces."""
    program = compile_program(text)
    assert program(b"sport.nfl.scores", b"SCORE 7:3")
    assert not program(b"sport.nhl.scores", b"7:3")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (b"", ()),
        (b" ", ()),
        (b'"a"', (b"a",)),
        (b' "a" , "b" ', (b"a", b"b")),
        (b"true,false", (True, False)),
        (b'""', (b"",)),
        (b'"(),&& ||"', (b"(),&& ||",)),
        (b'"\\\\\\n\\r\\t\\""', (b'\\\n\r\t"',)),
        (b'"\\q\\x41"', (b"\\q\\x41",)),
        (b'"ab\\0cd"', (b"ab",)),
        (b'"\xff\n"', (b"\xff\n",)),
    ],
)
def test_arguments(text: bytes, arguments: tuple[object, ...]) -> None:
    """A12, A13, A14: strings with their escapes, which a NUL ends, and booleans."""
    assert repr(_arguments(text)) == repr(arguments)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0.0),
        (b"1.", 1.0),
        (b".5", 0.5),
        (b"-0.25", -0.25),
        (b"+3e2", 300.0),
        (b"1E-2", 0.01),
        (b"0x10", 16.0),
        (b"-0x.8p1", -1.0),
        (b"0x1.8P+3", 12.0),
        (b"inf", math.inf),
        (b"-INFINITY", -math.inf),
        (b"1e999", math.inf),
        (b"-0x1p99999", -math.inf),
    ],
)
def test_numbers_are_those_of_strtod(text: bytes, number: float) -> None:
    """R41: an argument that is neither text nor boolean is what C reads as a double."""
    assert _arguments(text) == (number,)
    assert math.isnan(_arguments(b"NaN")[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (b"true(", "a string in quotes, true, false or a number at byte 13, where the program"),
        (b"true", r"\( after the function's name at byte 12, where the program ends"),
        (b"true() garbage", "expected the end at byte 15"),
        (b"1true()", r"expected a function or \("),
        (b"f(1 2)", r"expected , or \) at byte 12"),
        (b"f(1,)", "expected a string in quotes"),
        (b"f(,1)", "expected a string in quotes"),
        (b"f(1x)", r"expected , or \)"),
        (b"f(0x)", r"expected , or \)"),
        (b"f(1_0)", r"expected , or \)"),
        (b"f(truer)", "expected a string in quotes"),
        (b"f(')", "expected a string in quotes"),
        (b'f("a)', "string that begins at byte 10 does not end"),
        (b'f("a\\")', "string that begins at byte 10 does not end"),
        (b"(true() & true())", r"expected &&, \|\| or \) at byte 16"),
        (b"(true() x| true())", r"expected &&, \|\| or \)"),
        (b"true() && true()", "expected the end"),
        (b"(true() && true() && true())", r"expected \) after the two sides of &&"),
        (b"(true() && )", "expected a function"),
        (b"()", "expected a function"),
        (b"(true()", "where the program ends"),
        (b"nosuch()", r"no function nosuch\(\); there are payload_contains\(s\), "),
        (b'true("a")', r"no function true\(s\)"),
        (b"route_contains(1, true)", r"no function route_contains\(db\)"),
    ],
)
def test_a_wrong_program_is_told_where_it_is_wrong(rule: bytes, says: str) -> None:
    """R17, R42: nothing but a whole program is one, and the reason names the byte."""
    with pytest.raises(ProgramError, match=says):
        compile_program(b"prefix: " + rule)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'prefix:"x', "string that begins at byte 7 does not end"),
        (b'prefix:"x\\"', "does not end"),
        (b"prefix:a\0b", "byte 8 of the program is NUL"),
        (b"prefix:" + b"x" * (MAX_ROUTE + 1), f"128 bytes, and a route at most {MAX_ROUTE}"),
    ],
)
def test_wrong_prefixes(text: bytes, says: str) -> None:
    """R17: nor is a prefix that does not end, or that no route can have."""
    with pytest.raises(ProgramError, match=says):
        compile_program(text)


def test_parentheses_are_bounded() -> None:
    """A program of any length costs a bounded depth of calls."""
    for depth, fits in ((MAX_NESTING, True), (MAX_NESTING + 1, False), (60_000, False)):
        text = b"prefix: " + b"(" * depth + b"true()" + b")" * depth
        if fits:
            assert compile_program(text)(b"", b"")
        else:
            with pytest.raises(ProgramError, match=f"more than {MAX_NESTING} parentheses"):
                compile_program(text)
    deep = b"true()"
    for _ in range(MAX_NESTING):
        deep = b"(" + deep + b' && payload_prefix("a"))'
    assert compile_program(b"prefix: " + deep)(b"", b"a")
    assert parse(spell(parse(b"prefix: " + deep))) == parse(b"prefix: " + deep)


def test_arguments_are_bounded() -> None:
    """A call has at most 16 arguments."""
    many = RouteFunction("many", "VA", lambda route, payload, *given: len(given) == MAX_ARGUMENTS)
    functions = {many.key: many}
    program = compile_program(b"prefix: many(" + b"1," * 15 + b"1)", functions)
    assert program(b"", b"")
    with pytest.raises(ProgramError, match="many is called with more than 16 arguments"):
        compile_program(b"prefix: many(" + b"1," * 16 + b"1)", functions)


def test_a_call_means_the_function_of_its_signature() -> None:
    """A signature that fits goes before the function that takes anything."""

    def says(word: bytes) -> Callable[..., bool]:
        return lambda route, payload, *given: payload == word

    functions = {
        each.key: each
        for each in (
            RouteFunction("f", "sd", says(b"sd")),
            RouteFunction("f", "VA", says(b"VA")),
            RouteFunction("f", "", says(b"none")),
        )
    }
    for call, word in ((b'f("a", 1)', b"sd"), (b'f(1, "a")', b"VA"), (b"f()", b"none")):
        assert compile_program(b"prefix: " + call, functions)(b"", word)
        assert interpret(parse(b"prefix: " + call), functions, b"", word)


def test_what_a_function_says_is_a_boolean() -> None:
    """A function from outside may return anything that is true or false."""
    odd = RouteFunction("odd", "", lambda route, payload: payload)  # type: ignore[arg-type, return-value]
    functions = {odd.key: odd, **BUILT_IN}
    assert compile_program(b"prefix: odd()", functions)(b"", b"2") is True
    assert compile_program(b"prefix: (odd() && true())", functions)(b"", b"2") is True
    assert compile_program(b"prefix: (odd() || odd())", functions)(b"", b"") is False


@pytest.mark.parametrize(
    ("name", "signature", "says"),
    [
        ("1st", "", "is not letters, digits and underscores"),
        ("with space", "", "is not letters"),
        ("", "", "is not letters"),
        ("f", "x", "is neither VA nor at most 16 of the letters s, b and d"),
        ("f", "s" * 17, "is neither VA"),
        ("f", "sVA", "is neither VA"),
    ],
)
def test_a_function_that_no_program_can_call_is_refused(
    name: str, signature: str, says: str
) -> None:
    """A name or a signature that the grammar does not have."""
    with pytest.raises(ValueError, match=says):
        RouteFunction(name, signature, lambda route, payload: True)
    with pytest.raises(ValueError, match="cannot be called"):
        RouteFunction("f", "", 1)  # type: ignore[arg-type]


def test_the_tree_says_what_was_written() -> None:
    """R42: operators, sides and arguments."""
    parsed = parse(b'exact:r (a(1) && (b("x",true) || c()))')
    inner = Operation("||", Call("b", (b"x", True)), Call("c"))
    assert parsed == Parsed(b"r", True, Operation("&&", Call("a", (1.0,)), inner))
    assert spell(parsed) == b'exact:"r" (a(1.0) && (b("x", true) || c()))'
