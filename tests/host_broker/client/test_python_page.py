"""docs/python.md tells the truth: its programs run, and it names what there is."""

import asyncio
import re
import textwrap
from pathlib import Path

import pytest

import motemq
from tests.host_broker.net.broker_process import broker

_PAGE = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
_PROGRAMS = re.findall(r"^```python\n(.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)


def test_its_programs_run(capsys: pytest.CaptureFixture[str]) -> None:
    listen = ("--listen", "fmqp://127.0.0.1:0", "--listen", "micromsg2://127.0.0.1:0")
    with broker(*listen) as running:
        blocking, asynchronous, queue = (
            program.replace("fmqp://127.0.0.1:8765", running.urls["fmqp"]).replace(
                "micromsg2://127.0.0.1:8765", running.urls["micromsg2"]
            )
            for program in _PROGRAMS
        )
        exec(compile(queue, "docs/python.md", "exec"), {})
        assert "b'water' {'bed': 3, 'by': 'desk', 'at': datetime" in capsys.readouterr().out
        exec(compile(blocking, "docs/python.md", "exec"), {})
        assert "home/kitchen/temperature b'21.5' True" in capsys.readouterr().out
        # The second one would go on for ever.
        wrapped = "async def program():\n" + textwrap.indent(asynchronous, "    ")
        names: dict[str, object] = {"motemq": motemq}
        exec(compile(wrapped, "docs/python.md", "exec"), names)
        program = names["program"]
        assert callable(program)

        async def for_a_while() -> None:
            async with asyncio.timeout(3.0):
                await program()

        with pytest.raises(TimeoutError):
            asyncio.run(for_a_while())
        assert "home/hall/lamp b'on'" in capsys.readouterr().out


def test_its_calls_exist() -> None:
    rows = re.findall(r"^\| (`.*?) \| ", _PAGE, re.MULTILINE)
    assert len(rows) >= 10
    for name in re.findall(r"`(\w+)\(", " ".join(rows)):
        assert callable(getattr(motemq.Client, name))
        if name != "wait":
            assert callable(getattr(motemq.AsyncClient, name))
