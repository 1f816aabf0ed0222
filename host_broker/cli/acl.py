"""``motemq acl``: what the rules of a broker say."""

from pathlib import Path

import click

from host_broker.access.principal import ANONYMOUS, Principal
from host_broker.access.rights import Rights
from host_broker.access.rules import ACTIONS, Rule
from host_broker.cli.access_options import access_settings, chosen_file, config_option
from host_broker.cli.failure import failing_clearly
from host_broker.net.access.access_error import AccessError
from host_broker.net.access.access_files import read_rules, read_users
from host_broker.net.access.rule_lines import line_of
from host_broker.printable import printable
from host_broker.registry import protocols

_DENIED = 1
_UNREADABLE = 3


@click.group()
def command() -> None:
    """Ask what the rules of a broker say, the file that its setting access.rules names."""


@command.command()
@click.argument("principal")
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("path")
@click.option(
    "--rules",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file of rules.",
)
@click.option(
    "--users",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file of users, to say if there is no such user.",
)
@config_option
def explain(
    principal: str,
    action: str,
    path: str,
    rules: Path | None,
    users: Path | None,
    config: Path | None,
) -> None:
    """Say whether PRINCIPAL may do ACTION at PATH, and which line of which file decides.

    PRINCIPAL is a user's name, uid:N or anonymous. PATH is a topic, perhaps with * levels, for
    publish and subscribe; the client that is called for call; the protocol for connect;
    $/signals/stop or terminate for signal; topics (** is all) or groups/NAME for journal.

    Exit codes: 0 allowed, 1 denied, 2 wrong usage, 3 a file cannot be used.
    """
    rules_file = chosen_file(rules, config, "rules", "--rules")
    if users is None and config is not None and access_settings(config).users:
        users = Path(access_settings(config).users)
    with failing_clearly("acl", AccessError):
        try:
            read = read_rules(rules_file)
            no_user = principal.startswith("uid:") or principal == ANONYMOUS.name
            if users is not None and not no_user and principal not in read_users(users):
                click.echo(f"acl: {users} has no user {principal!r}", err=True)
        except AccessError as error:
            click.echo(f"acl: error: {printable(str(error))}", err=True)
            raise SystemExit(_UNREADABLE) from error
        paths = [spec.client_paths for spec in protocols().values() if spec.client_paths]
        who = ANONYMOUS if principal == ANONYMOUS.name else Principal(principal, "listener")
        rights = Rights(read, paths)
        kind = next(each for each in ACTIONS if each == action)
        decision = rights.allows(who, kind, path)
        verb = "may" if decision else "may not"
        click.echo(printable(f"{principal} {verb} {action} {path}"))
        if decision.rule is not None:
            click.echo(printable(_where(rules_file, decision.rule)))
        else:
            click.echo(printable(decision.reason))
        raise SystemExit(0 if decision else _DENIED)


def _where(file: Path, rule: Rule) -> str:
    return f"{file}:{line_of(file.read_text(encoding='utf-8-sig'), rule)}: {rule}"
