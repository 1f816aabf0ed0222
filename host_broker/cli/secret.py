"""A secret that the user gives: by prompt, standard input or file, never on the command line."""

import sys
from pathlib import Path

import click

_LONGEST = 1024  # characters
# A LightMQ ClientID is NAME:SECRET, or NAME:SECRET>CALLED.
_MARKS = ":>"


def read_secret(what: str, file: Path | None) -> str:
    """Return the secret in ``file``, or what is typed twice, or the first line of standard input if
    that is no terminal. ``-`` is standard input, too. Raises ``UsageError``."""
    if file is not None and str(file) != "-":
        try:
            secret = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise click.UsageError(f"cannot read {file}: {reason}") from error
    elif file is None and sys.stdin.isatty():
        secret = click.prompt(what, hide_input=True, confirmation_prompt=True, err=True)
    else:
        secret = sys.stdin.readline()
    secret = secret.rstrip("\r\n")
    if not secret:
        raise click.UsageError(f"the {what} is empty")
    if len(secret) > _LONGEST or not secret.isprintable():
        raise click.UsageError(f"a {what} is one printable line of at most {_LONGEST} characters")
    if any(mark in secret for mark in _MARKS):
        raise click.UsageError(f"a {what} has no : or >, which LightMQ puts around it")
    return secret
