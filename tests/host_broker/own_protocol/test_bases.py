"""What a protocol must define, and what its bases define for it."""

import ast
import inspect
import textwrap

import pytest

from host_broker.protocol import ProtocolServer, Session


def _abstract(base: type) -> set[str]:
    """Return the methods that a type checker takes for abstract: nothing but a docstring."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        method.name
        for method in definition.body
        if isinstance(method, ast.FunctionDef) and len(method.body) == 1
    }


@pytest.mark.parametrize(
    ("base", "needed"), [(Session, {"received"}), (ProtocolServer, {"session"})]
)
def test_a_subclass_needs_to_define_no_more(base: type, needed: set[str]) -> None:
    assert _abstract(base) == needed
