"""The golden vectors of UMQ, both ways."""

from dataclasses import asdict
from typing import Any

import pytest

from host_broker.protocols.umq.codec import Message, read_message, spell_message
from host_broker.wire.violation import Violation
from tests.host_broker.golden import label, vectors

_TEXTS = [vector for vector in vectors("umq") if vector["kind"] == "text"]


@pytest.mark.parametrize("vector", _TEXTS, ids=label)
def test_a_text_means_what_the_vector_says(vector: dict[str, Any]) -> None:
    """R2, R6, R7: also of what is none."""
    read = read_message(bytes.fromhex(vector["hex"]).decode())
    if vector["violation"] is not None:
        assert isinstance(read, Violation)
        assert {"rule": read.rule, "fatal": read.fatal} == vector["violation"]
    else:
        assert isinstance(read, Message)
        assert asdict(read) == vector["event"]


@pytest.mark.parametrize("vector", [each for each in _TEXTS if each["encodes"]], ids=label)
def test_it_is_spelled_so(vector: dict[str, Any]) -> None:
    spelled = spell_message(**vector["event"])
    assert spelled.encode().hex() == vector["hex"]
