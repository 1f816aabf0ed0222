"""``motemq completion``: what a shell needs to complete our command lines with Tab."""

import os
import sys
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)
from click.shell_completion import split_arg_string as split

_VARIABLE = "_MOTEMQ_COMPLETE"  # as click has it for a program called motemq
_SHELLS = ("bash", "zsh", "fish")
# Bash splits a line at colons, of which addresses are full; so ours looks at the line itself, and
# takes off what is before the last colon, because bash keeps that.
_BASH = """\
_motemq_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" reply kind head=""
    local word="${line##* }" quoted="${COMP_WORDS[COMP_CWORD]:0:1}"
    [[ "$quoted" == [\\'\\"] ]] || quoted=""
    [[ -z "$quoted" && "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && head="${word%:*}:"
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ -n "$reply" ]] || continue
        kind="${reply%%,*}" reply="${reply#*,}"
        case "$kind" in
            dir | file) compopt -o default ;;
            *)
                reply="${reply#"$head"}"
                [[ -n "$quoted" ]] || printf -v reply %q "$reply"
                COMPREPLY+=("$reply")
                ;;
        esac
    done < <(MOTEMQ_LINE="$line" _MOTEMQ_COMPLETE=bash_complete "$1" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == */ ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _motemq_completion motemq
"""
# As click's, but that no space comes behind a level of a topic, so that Tab goes on with the next
# one, and that the second Tab of a shell does what the first one did: all of the file is then the
# function, which is loaded no more.
_ZSH = """\
#compdef motemq

_motemq_completion() {
    local -a replies described plain levels
    local kind key help
    (( $+commands[motemq] )) || return 1
    replies=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
        _MOTEMQ_COMPLETE=zsh_complete motemq)}")
    for kind key help in $replies; do
        case "$kind" in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain)
                if [[ "$help" != "_" ]]; then described+=("$key:$help")
                elif [[ "$key" == */ ]]; then levels+=("$key")
                else plain+=("$key")
                fi ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#levels )) && compadd -U -V unsorted -S '' -a levels
    (( $#plain )) && compadd -U -V unsorted -a plain
    return 0
}

if [[ "$funcstack[1]" == _motemq ]]; then
    _motemq_completion "$@"
else
    compdef _motemq_completion motemq
fi
"""
_ZSHRC = """
# motemq: completion
fpath=({folder} $fpath)
autoload -Uz compinit && compinit
"""
_BASHRC = """
# motemq: completion
. {file}
"""


class LineComplete(BashComplete):
    """Bash's completion, by the line and not by its words."""

    source_template = _BASH

    def source(self) -> str:
        """Return the script, whatever bash there is here."""
        return self.source_template

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is being typed, and that."""
        # With a character behind it the last word is the one that is being typed, also if that is
        # empty, or has a space within quotes.
        words = split(os.environ.get("MOTEMQ_LINE", "") + ".")[1:]
        return (words[:-1], words[-1][:-1]) if words else ([], "")


class LevelsComplete(ZshComplete):
    """zsh's completion, that completes topics level by level."""

    source_template = _ZSH

    def source(self) -> str:
        """Return the script; there is nothing in it to fill in."""
        return self.source_template


def register() -> None:
    """Have click use our scripts of bash and zsh."""
    add_completion_class(LineComplete, "bash")
    add_completion_class(LevelsComplete, "zsh")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write it to where the shell looks for it.")
def command(shell: str | None, install: bool) -> None:
    """Print what SHELL needs to complete motemq's commands, or install it.

    SHELL is bash, zsh or fish; yours, by $SHELL, if it is left out. With Tab it then completes
    commands and options, topics that the broker of the line keeps a message of, names of clients
    that can be called, and ids of boards of the rig.

    Exit codes: 0, 1 a file cannot be written, 2 another shell.
    """
    register()
    if shell is None:
        shell = Path(os.environ.get("SHELL", "")).name
        if shell not in _SHELLS:
            raise click.UsageError(f"which shell? Name it: {', '.join(_SHELLS)}")
    script = _script(shell)
    if not install:
        click.echo(script, nl=False)
        return
    try:
        for line in _install(shell, script):
            click.echo(f"completion: {line}", err=True)
    except OSError as error:
        click.echo(f"completion: error: {error.filename}: {error.strerror}", err=True)
        sys.exit(1)


def _script(shell: str) -> str:
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"there is no completion for {shell}")
    whole = click.get_current_context().find_root().command
    return completion(whole, {}, "motemq", _VARIABLE).source()


def _install(shell: str, script: str) -> list[str]:
    """Write the script, and what makes the shell find it; returns what was done."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return [_written(config / "fish" / "completions" / "motemq.fish", script)]
    if shell == "zsh":
        folder = data / "motemq" / "zsh"
        rc = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
        return [
            _written(folder / "_motemq", script),
            *_added(rc, _ZSHRC.format(folder=folder)),
            "it works in every new zsh",
        ]
    file = data / "bash-completion" / "completions" / "motemq"
    # Where the package bash-completion is installed it finds the file itself.
    loads = Path("/usr/share/bash-completion/bash_completion").exists()
    return [
        _written(file, script),
        *([] if loads else _added(home / ".bashrc", _BASHRC.format(file=file))),
        "it works in every new bash",
    ]


def _written(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return f"wrote {file}"


def _added(file: Path, text: str) -> list[str]:
    """Add a text to a file, unless it is there."""
    there = file.read_text() if file.exists() else ""
    if text in there:
        return []
    with file.open("a") as opened:
        opened.write(text)
    return [f"added two lines to {file}"]
