"""Every ``--help`` fits a terminal of 80 columns."""

from collections.abc import Iterator

import click
import pytest

from motemq.cli import main

_COLUMNS = 80


def _walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=words[-1] if words else "motemq")
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _walk(found, (*words, name))


_COMMANDS = list(_walk(main, ()))


def test_the_walk_finds_the_commands() -> None:
    assert {("pub",), ("rig", "run"), ("pipeline", "query"), ("completion",)} <= set(_COMMANDS)


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_help_fits_80_columns(words: tuple[str, ...]) -> None:
    context = click.Context(main, info_name="motemq", terminal_width=_COLUMNS)
    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=word, terminal_width=_COLUMNS)
    wide = [line for line in command.get_help(context).splitlines() if len(line) > _COLUMNS]
    assert wide == []
