"""A worker's words to its parent: one line of JSON each on stdout."""

import json
import os
import sys
import threading
from typing import Any

from boards.session.events import stamp


class Channel:
    """The line to the parent. Nothing else may write to it, so stdout is given away."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **stamp(), **fields}).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


class Teller:
    """Tells the parent; bridge lines go to stderr, which is the worker's log."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def progress(self, text: str) -> None:
        self._channel.send("progress", text=text)

    def about(self, **facts: str) -> None:
        self._channel.send("about", **facts)

    def bridge_line(self, text: str) -> None:
        sys.stderr.write(f"{stamp()['ts']} bridge: {text}\n")
        sys.stderr.flush()
