"""``make size``: bytes of .mpy per module, as boards get them, against the written budget."""

import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from firmware.node_files import CLIENT_OPTIMISATION, CompileError, compile_client

BUDGET_FILE = Path(__file__).parents[2] / "client_upy" / "size.toml"


@dataclass(frozen=True, slots=True)
class Whole:
    """Modules that are installed or imported together, and bytes: the limit and the wish."""

    about: str
    modules: tuple[str, ...]
    budget: int
    goal: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What is written in client_upy/size.toml: bytes of .mpy by module, their sums, and of heap."""

    modules: dict[str, int]
    wholes: tuple[Whole, ...]
    imports: tuple[Whole, ...]


def budget(file: Path = BUDGET_FILE) -> Budget:
    """Return the written budget."""
    read = tomllib.loads(file.read_text())
    wholes, imports = (
        tuple(Whole(**{**each, "modules": tuple(each["modules"])}) for each in read[kind])
        for kind in ("whole", "import")
    )
    return Budget(read["modules"], wholes, imports)


def compiled(folder: Path) -> dict[str, int]:
    """Compile the client into ``folder``; return the bytes of each module. Raises CompileError."""
    return {path.stem: path.stat().st_size for path, _ in compile_client(folder)}


def judged(sizes: Mapping[str, int], budget: Budget) -> tuple[str, list[str]]:
    """Return the table, and what is wrong: modules or sums above budget, or without one."""
    wrong = [f"{name}: no budget in size.toml" for name in sizes.keys() - budget.modules.keys()]
    wrong += [f"{name}: in size.toml, but no module" for name in budget.modules.keys() - sizes]
    lines = [f"{'module':<12} {'bytes':>6} {'budget':>6}"]
    for name, size in sorted(sizes.items()):
        limit = budget.modules.get(name, 0)
        lines.append(f"{name:<12} {size:>6} {limit:>6}")
        if size > limit:
            wrong.append(f"{name}: {size} bytes, {size - limit} above its budget")
    lines.append(f"{'all':<12} {sum(sizes.values()):>6}")
    for whole in budget.wholes:
        size = sum(sizes.get(name, 0) for name in whole.modules)
        lines.append(f"\n{whole.about}: {size} bytes, budget {whole.budget}, goal {whole.goal}")
        lines.append(f"  {' '.join(whole.modules)}")
        if size > whole.budget:
            wrong.append(f"{whole.about}: {size} bytes, {size - whole.budget} above its budget")
    return "\n".join(lines), sorted(wrong)


@click.command()
def command() -> None:
    """Print the bytes of .mpy of every module of the client and of what is installed together.

    Exit codes: 0 within the budget in client_upy/size.toml, 1 above it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="motemq-size-") as folder:
            table, wrong = judged(compiled(Path(folder)), budget())
    except CompileError as failed:
        raise click.ClickException(str(failed)) from None
    click.echo(f"compiled as it is shipped: mpy-cross -O{CLIENT_OPTIMISATION}\n\n{table}")
    for line in wrong:
        click.echo(f"size: {line}", err=True)
    if wrong:
        raise SystemExit(1)
