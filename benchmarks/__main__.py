"""``python -m benchmarks``: one sub-command per benchmark."""

import click

from benchmarks.broker.command import command as broker


@click.group()
def main() -> None:
    """Measure MoteMQ against named peers."""


main.add_command(broker, "broker")

if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
