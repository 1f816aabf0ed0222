"""How commands about users and rules find the files."""

from pathlib import Path

import click

from host_broker.net.settings_source import SettingsError, load_settings
from host_broker.settings import AccessSettings

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="The broker's settings, which name the files.",
)


def access_settings(config: Path | None) -> AccessSettings:
    """Return what the settings say about users. Raises ``UsageError``."""
    try:
        return load_settings(config).access
    except SettingsError as error:
        raise click.UsageError(str(error)) from error


def chosen_file(file: Path | None, config: Path | None, key: str, option: str) -> Path:
    """Return the file that was given, or that the settings name. Raises ``UsageError``."""
    if file is not None:
        return file
    named: str = getattr(access_settings(config), key)
    if not named:
        where = f"{config} has no access.{key}" if config is not None else "no file was given"
        raise click.UsageError(f"{where}; give {option} FILE, or --config with access.{key}")
    return Path(named)
