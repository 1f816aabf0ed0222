"""UMQ's text messages: numbers, errors, whatever may come."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.protocols.umq.codec import (
    BARE,
    COMMANDS,
    Message,
    read_attribute,
    read_callback,
    read_error,
    read_id,
    read_message,
    spell_error,
    spell_id,
    spell_message,
)
from host_broker.wire.violation import Violation

_IDS = st.integers(0, 36**13 - 1)
_PAYLOADS = st.text(st.characters(exclude_categories=["Cs"]))


def test_an_empty_number_is_zero() -> None:
    """A1."""
    assert read_id("") == 0
    assert read_message("F:3 x") == read_message("F0:3 x") == Message("F", 0, "3 x")
    assert read_message("-:x") == read_message("-0:x") == Message("-", 0, "x")
    assert [spell_message(command, 0, "x") for command in "F-SX"] == ["F0:x", "-:x", "S:x", "X:x"]


def test_lower_case_is_read_if_that_is_wanted() -> None:
    """A2, R2."""
    assert isinstance(read_message("Caz:x"), Violation)
    assert read_message("Caz:x", lenient_case=True) == Message("C", 395, "x")
    assert isinstance(read_message("Cä:x", lenient_case=True), Violation)


def test_ids_are_numbers() -> None:
    """A3: leading zeros make no other id."""
    assert read_id("00A") == read_id("A") == 10
    assert spell_id(10) == "A"
    assert spell_id(0) == "0"


def test_ids_have_so_many_digits() -> None:
    """A4."""
    assert read_id("Z" * 13) == 36**13 - 1
    fault = read_message(f"C{'Z' * 14}:")
    assert isinstance(fault, Violation)
    assert fault.rule == "umq.max_id_digits"
    assert read_message(f"C{'Z' * 14}:", max_id_digits=14) == Message("C", 36**14 - 1, "")
    assert isinstance(read_message("A00000000000001:C1:"), Violation)


def test_attachments_are_counted_in_base_36() -> None:
    """A5, A6, R5: and none is none."""
    assert read_message("A10:C1:x") == Message("C", 1, "x", 36)
    assert read_message("A0:C1:x") == read_message("A:C1:x") == Message("C", 1, "x")


def test_a_within_a_is_none() -> None:
    """A7, R6."""
    fault = read_message("A1:A1:C6:x")
    assert isinstance(fault, Violation)
    assert fault.rule == "R6"


@pytest.mark.parametrize("command", sorted(BARE))
def test_what_may_have_no_attachments(command: str) -> None:
    """A11, R14, R16, R21, R27, R29."""
    fault = read_message(f"A1:{command}1:x")
    assert isinstance(fault, Violation)
    assert fault.rule == BARE[command]
    assert fault.fatal
    lenient = read_message(f"A1:{command}1:x", lenient_attachments=True)
    assert lenient == Message(command, 1, "x", 1)
    assert read_message(f"A0:{command}1:x") == Message(command, 1, "x")


def test_the_command_is_a_minus_sign() -> None:
    """A21: without the quotes of the text, and no other dash."""
    assert read_message("-:gone") == Message("-", 0, "gone")
    assert isinstance(read_message("'-':gone"), Violation)
    assert isinstance(read_message("\N{EN DASH}:gone"), Violation)


def test_an_attribute_has_an_equals_sign() -> None:
    """A22, R32: divided at the first; spaces stay."""
    assert read_attribute("k=a=b") == ("k", "a=b")
    assert read_attribute(" k = v ") == (" k ", " v ")
    assert read_attribute("=") == ("", "")
    assert isinstance(read_attribute("key"), Violation)


def test_a_callback_has_an_id_and_an_argument() -> None:
    """R22: the first ':' divides them."""
    assert read_callback("4454:here: a work") == (int("4454", 36), "here: a work")
    assert read_callback(":x") == (0, "x")
    assert isinstance(read_callback("4454"), Violation)
    assert isinstance(read_callback("a:x"), Violation)
    assert read_callback("a:x", lenient_case=True) == (10, "x")


def test_errors_have_a_code_and_a_text() -> None:
    """R12, A13: a text alone is one, too."""
    assert spell_error(3, "Protocol error") == "3 Protocol error"
    assert read_error("123 Authorization failed") == (123, "Authorization failed")
    assert read_error("I'm a teapot") == (0, "I'm a teapot")
    assert read_error("") == (0, "")
    assert read_error("7") == (7, "")
    assert read_error("\N{ARABIC-INDIC DIGIT ONE} x") == (0, "\N{ARABIC-INDIC DIGIT ONE} x")
    assert read_error(f"{'9' * 5000} x")[0] == 0


@given(st.sampled_from(sorted(COMMANDS)), _IDS, _PAYLOADS, st.integers(0, 10_000))
def test_what_is_spelled_is_read_again(
    command: str, number: int, payload: str, attachments: int
) -> None:
    """R1: except for ids that mean nothing (R35)."""
    if command in BARE:
        attachments = 0
    spelled = spell_message(command, number, payload, attachments)
    read = read_message(spelled)
    assert read == Message(command, 0 if command in "-SX" else number, payload, attachments)


@given(st.integers(0, 36**20))
def test_numbers_are_what_python_reads(number: int) -> None:
    spelled = spell_id(number)
    assert int(spelled, 36) == number
    assert spelled == spelled.upper()
    assert read_id(spelled, max_digits=30) == number


_SALAD = st.text(st.sampled_from(string.digits + string.ascii_letters + ":-=! A\n\0é"), max_size=20)


@given(_SALAD, st.booleans(), st.booleans())
def test_whatever_comes_is_read_or_refused(text: str, case: bool, attachments: bool) -> None:
    read = read_message(text, lenient_case=case, lenient_attachments=attachments)
    if isinstance(read, Message):
        assert read.command in COMMANDS
        assert text.endswith(f":{read.payload}")
    else:
        assert read.fatal
        assert read.rule
    read_error(text)
    read_attribute(text)
    read_callback(text)
