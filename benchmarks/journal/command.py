"""``python -m benchmarks journal``."""

import tempfile
from pathlib import Path

import click

from benchmarks.broker.report import machine
from benchmarks.journal import decoding, journals, serving

_NAMES = ("start", "serve", "decode")
_GIB = 1024**3
_MUST_START_S = 2.0
_MUST_MB_PER_S = 200.0
_MUST_OF_LARGE = 0.7  # decoding single messages that were written together
_SERVED_BYTES = 400_000_000


@click.command()
@click.argument("names", nargs=-1, metavar="[MEASURE]...", type=click.Choice(_NAMES))
@click.option("--gib", default=16.0, show_default=True, type=click.FloatRange(0.01, 64))
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where to write the journals; they are deleted.  [default: the system's]",
)
def command(names: tuple[str, ...], gib: float, folder: Path | None) -> None:
    """Measure the journal with single-message records, as sensors make them.

    Without a MEASURE all are taken: start, from the start of a broker with --gib of them to the
    first byte of a message in the middle; serve, reading by HTTP beside Python's http.server; and
    decode, blocks to Arrow beside Parquet. Exit codes: 0 measured (reached or not), 2 wrong usage.
    """
    click.echo(machine())
    for name in names or _NAMES:
        with tempfile.TemporaryDirectory(prefix="motemq-bench-", dir=folder) as place:
            {"start": _start, "serve": _serve, "decode": _decode}[name](Path(place), gib)


def _start(place: Path, gib: float) -> None:
    records = journals.reads(5000, 1)
    messages = journals.write(place / "journal", records, 500, int(gib * _GIB), partitions=2)
    clean = serving.start(place)
    for folder in (place / "journal").glob("p*"):  # as a broker leaves it that was killed
        max(folder.glob("*.mji")).unlink()
    killed = serving.start(place)
    for path in (place / "journal").glob("p*/*.mji"):
        path.unlink()
    bare = serving.start(place)
    click.echo(
        f"\n{gib:g} GiB, {messages:,} records of one message; s from the start of the process"
    )
    click.echo(
        "\n| | listening | first byte | must | reached | then by time |\n|---|---|---|---|---|---|"
    )
    for name, found, must in (
        ("ended in order", clean, True),
        ("killed", killed, True),
        ("without any index", bare, False),
    ):
        reached = "yes" if found.first_byte_s <= _MUST_START_S else "**no**"
        goal = [f"≤ {_MUST_START_S:g}", reached] if must else ["", ""]
        times = (f"{found.listening_s:.2f}", f"{found.first_byte_s:.2f}")
        click.echo("| " + " | ".join([name, *times, *goal, f"{found.by_time_s:.3f}"]) + " |")


def _serve(place: Path, gib: float) -> None:
    journal = place / "journal"
    messages = journals.write(journal, journals.reads(5000, 1), 500, _SERVED_BYTES)
    with serving.broker(place) as port:
        serving.read(port, messages)
        every = max((serving.read(port, messages) for _ in range(3)), key=lambda r: r.mb_per_s)
        one = serving.read(port, messages, "home/room07/temperature")
    files = serving.read_files(journal / "p0000")
    click.echo(f"\n{messages:,} records of one message by HTTP, one reader\n")
    click.echo("| | MB/s | messages/s | must | reached |\n|---|---|---|---|---|")
    reached = "yes" if every.mb_per_s >= _MUST_MB_PER_S else "**no**"
    rates = (
        ("the journal", every, [f"≥ {_MUST_MB_PER_S:g} MB/s", reached]),
        ("one topic of 50", one, ["", ""]),
        ("the same files from python -m http.server", files, ["", ""]),
    )
    for name, rate, goal in rates:
        cells = [name, f"{rate.mb_per_s:.0f}", f"{messages / rate.seconds:,.0f}", *goal]
        click.echo("| " + " | ".join(cells) + " |")


def _decode(place: Path, gib: float) -> None:
    click.echo("\ndecoding, one core, best of 5\n")
    click.echo("| messages a read | M rows/s | bytes each | of the first | must | reached |")
    click.echo("|---|---|---|---|---|---|")
    first = 0.0
    for found in decoding.measure(place):
        first = first or found.rows_per_s
        ratio = found.rows_per_s / first
        goal = ["", ""]
        if "2,800 at once" in found.shape:
            goal = [f"≥ {_MUST_OF_LARGE:g}", "yes" if ratio >= _MUST_OF_LARGE else "**no**"]
        figures = [f"{found.rows_per_s / 1e6:.2f}", f"{found.message_bytes:.0f}", f"{ratio:.2f}"]
        click.echo("| " + " | ".join([found.shape, *figures, *goal]) + " |")
