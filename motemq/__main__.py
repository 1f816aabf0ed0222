"""``python -m motemq`` is the ``motemq`` command."""

from motemq.cli import main

main()
