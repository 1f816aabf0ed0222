"""``python -m boards.faults``: serves until its standard input ends.

Prints ``{"control_port": N}`` once; its trace, a JSON line per opening and end, goes to stderr.
"""

import json
import os
import selectors
import sys

from boards.faults.service import Service


def main() -> None:
    """Serve until stdin ends."""
    selector = selectors.DefaultSelector()
    service = Service(selector, sys.stderr)
    alive = [True]

    def parent(_events: int) -> None:
        if not os.read(0, 4096):
            alive.clear()

    selector.register(0, selectors.EVENT_READ, parent)
    sys.stdout.write(json.dumps({"control_port": service.port}) + "\n")
    sys.stdout.flush()
    while alive:
        service.turn()
    service.close()


if __name__ == "__main__":
    main()
