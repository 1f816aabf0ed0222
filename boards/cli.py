"""``motemq rig``: a table of verbs, each imported only when it is used."""

import importlib

import click

_VERBS = {
    "list": ("boards.commands.list_boards:command", "List the desk: boards, ports, states."),
    "add": ("boards.commands.add:command", "Write the file of a board that is plugged in."),
    "doctor": ("boards.commands.doctor:command", "Find out what keeps boards from working."),
    "flash": ("boards.commands.flash:command", "Put firmware on boards, never the wrong one."),
    "virtual": ("boards.virtual.cli:command", "Boards for a desk that has none."),
    "run": ("boards.commands.run:command", "Flash, install, check and judge boards."),
    "monitor": ("boards.commands.monitor:command", "Print what a board says, with the time."),
    "watch": ("boards.commands.watch:command", "Install a program each time a file is saved."),
    "shell": ("boards.commands.shell:command", "Open a board's REPL, with its lock held."),
    "lock": ("boards.commands.lock:command", "Show and hold boards' locks."),
    "power": ("boards.commands.power:command", "Switch a board on, off, or off and on."),
    "recover": ("boards.commands.recover:command", "Bring a wedged board back."),
    "report": ("boards.commands.report:command", "Write reports of a run again."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, _, attribute = _VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in _VERBS.items()])


@click.group(cls=_LazyGroup)
def command() -> None:
    """Flash, install, check and judge every board on the desk."""
