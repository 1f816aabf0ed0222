"""``python -m benchmarks``: run every benchmark."""

from benchmarks.broker import command

command()
