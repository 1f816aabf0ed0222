"""``motemq firmware``: build or find what is flashed on boards."""

import datetime
from pathlib import Path

import click

from firmware import cache
from firmware.build import NAMES, BuildError, ensure
from firmware.build.ensure import about, cached, current_entries
from firmware.client_package import write_index, write_packages
from firmware.images import ImageUnknown, cached_image, fetch_image, official_images, pin
from firmware.node_files import CompileError


@click.group()
def command() -> None:
    """Build or find board firmware.

    MicroPython is built from Debian's sources, once per recipe, in the user's cache folder
    ($MOTEMQ_CACHE sets another).
    """


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice(NAMES))
def build(names: tuple[str, ...]) -> None:
    """Build NAME... unless it is in the cache, and print each file's path.

    Progress goes to stderr. See 'motemq firmware list' for the names.
    """
    for name in names:
        click.echo(_built(name))


@command.command()
@click.argument("name", metavar="NAME", type=click.Choice(NAMES))
def path(name: str) -> None:
    """Print the path of NAME's file, which must have been built."""
    found = cached(name)
    if found is None:
        raise click.ClickException(
            f"{name} is not in the cache; build it with: motemq firmware build {name}"
        )
    click.echo(found)


@command.command(name="list")
def list_() -> None:
    """List what can be built, and whether it is in the cache."""
    for name in NAMES:
        state = "built" if cached(name) else "not built"
        click.echo(f"{name:<10} {state:<10} {about(name)}")


@command.command()
def images() -> None:
    """List MicroPython's own images for boards, and whether their SHA-256 is known."""
    try:
        for image in official_images().values():
            state = "cached" if cached_image(image) else "pinned" if image.sha256 else "unverified"
            click.echo(f"{image.name:<17} {image.version:<8} {state:<10} {image.url}")
    except ImageUnknown as error:
        raise click.ClickException(str(error)) from None


@command.command()
@click.argument("name")
@click.option(
    "--lock",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Note there what is trusted, e.g. in a desk's firmware.lock.  [default: your settings]",
)
def fetch(name: str, lock: Path | None) -> None:
    """Download the official image NAME unless it is in the cache, verify it, print its path.

    The first download is trusted, as it comes over HTTPS, and its SHA-256 is noted; from then on
    no other file is taken under this name.
    """
    try:
        click.echo(fetch_image(name, lambda line: click.echo(line, err=True), lock=lock))
    except ImageUnknown as error:
        raise click.ClickException(str(error)) from None


@command.command("pin")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def pin_command(file: Path) -> None:
    """Trust FILE, an official image by its file name, on this account from now on."""
    try:
        image, where = pin(file)
    except ImageUnknown as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{image.name} {image.version}: sha256 {image.sha256}, noted in {where}")


@command.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--index",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write an index there too, for a web server: mip install --index URL umotemq",
)
def client(out: Path, index: Path | None) -> None:
    """Write the client's packages for mip, compiled to .mpy, into the folder OUT.

    Install one: mpremote mip install OUT/package.json
    """
    try:
        packages = write_packages(out)
        if index:
            write_index(index)
    except (CompileError, OSError) as error:
        raise click.ClickException(str(error)) from None
    for package in packages:
        click.echo(package)


@command.command()
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=14.0,
    show_default=True,
    help="Remove what was not used for so long.",
)
@click.option(
    "--max-mb",
    type=click.FloatRange(min=0),
    help="Then remove more, the least recently used first, until the cache is no larger.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def prune(days: float, max_mb: float | None, dry_run: bool) -> None:
    """Remove old builds from the cache.

    What this version of MoteMQ builds is kept, and so are the official images that it knows, and
    what is just being used or built: it is safe at any time.
    """
    try:
        images = [cached_image(image) for image in official_images().values()]
        removed = cache.prune(
            older_than_s=days * 86400,
            max_bytes=None if max_mb is None else int(max_mb * 1e6),
            keep=[*current_entries(), *(image.parent for image in images if image)],
            dry_run=dry_run,
        )
    except (ImageUnknown, OSError) as error:
        raise click.ClickException(str(error)) from None
    for entry in removed:
        used = datetime.datetime.fromtimestamp(entry.used_s).strftime("%Y-%m-%d %H:%M")
        name = entry.path.relative_to(cache.cache_dir())
        click.echo(f"{name}: {entry.size_bytes / 1e6:.1f} MB, last used {used}")
    total = sum(entry.size_bytes for entry in removed)
    what = "would be removed" if dry_run else "removed"
    click.echo(f"{len(removed)} builds, {total / 1e6:.1f} MB {what}")


def _built(name: str) -> str:
    try:
        return str(ensure(name, lambda line: click.echo(line, err=True)))
    except BuildError as error:
        raise click.ClickException(str(error)) from None
