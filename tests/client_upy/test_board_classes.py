"""Classes on boards have a dictionary as small as it can be, and are the same otherwise."""

import ast
import subprocess
from pathlib import Path

import pytest

from firmware.board_classes import shrunk

# Prints the class's heap, as it is and without what nothing looks at; and whether it works.
_PROGRAM = """
import gc
def taken(make):
    gc.collect()
    before = gc.mem_alloc()
    made.append(make())
    gc.collect()
    return gc.mem_alloc() - before
made = [None] * 3
made.clear()
{plain}
{small}
whole, less = taken(plain), taken(small)
print(whole, less, made[0]().m0() == made[1]().m0() == 7, made[1].__name__)
"""


def _class(methods: int) -> ast.ClassDef:
    body = [f"    def m{i}(self):\n        return {i + 7}" for i in range(methods)]
    (node,) = ast.parse("class Some:\n" + "\n".join(body)).body
    assert isinstance(node, ast.ClassDef)
    return node


def _function(name: str, statement: ast.stmt) -> str:
    lines = ast.unparse(statement).splitlines()
    return "\n".join([f"def {name}():", *(f"    {line}" for line in lines), "    return Some"])


@pytest.mark.parametrize(
    ("methods", "gains"), [(1, True), (2, True), (5, True), (11, True), (13, False), (22, True)]
)
def test_a_class_takes_less_where_its_dictionary_then_has_fewer_slots(
    methods: int, gains: bool, unix32_port: Path
) -> None:
    program = _PROGRAM.format(
        plain=_function("plain", _class(methods)), small=_function("small", shrunk(_class(methods)))
    )
    done = subprocess.run(
        [unix32_port, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    whole, less, works, name = done.stdout.split()
    assert (works, name) == ("True", "Some")
    assert (int(less) < int(whole)) is gains


def test_a_class_without_a_body_is_made_by_type(unix32_port: Path) -> None:
    (node,) = ast.parse("class Lost(OSError):\n    pass").body
    assert isinstance(node, ast.ClassDef)
    made = ast.unparse(shrunk(node))
    program = f"{made}\nerror = Lost('timeout', 1)\nprint(repr(error), isinstance(error, OSError))"
    done = subprocess.run(
        [unix32_port, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "class" not in made
    assert done.stdout == "Lost('timeout', 1) True\n"
