"""What came of a MicroMsg2 queue under asyncio, until the program has finished with it.

umotemq.messages imports it for whoever subscribes to a queue.
"""


class Held:
    """As the list of umotemq.messages; what was appended is not acknowledged before it is finished.

    The program has finished with what it took when it asks whether there is more. No more comes
    than the window, as nothing is acknowledged that is here, nor anything behind it. What came by a
    link that is lost is thrown away: it comes again by the next one.
    """

    def __init__(self, link, name):
        self._link = link
        self._name = link.client._normalised(name)
        # (topic, payload), its number, and the list of its link that says what is not finished with
        self._waiting = []
        self._has = False  # whether the program has the first of them

    def begin(self):
        """Go on with what an earlier subscription here leaves, and with what it has in hand."""
        link = self._link
        held = link._held = getattr(link, "_held", {})
        before = held.get(self._name)
        if before is not None:  # an empty one is false
            self._waiting = before._waiting
            before._waiting = []
        held[self._name] = self

    def append(self, message):
        """Take a message, in its handler."""
        still = self._link.client._open
        number = still[-1]
        still.append(number)
        self._waiting.append((message, number, still))

    def __len__(self):
        """Return how many there are."""
        return len(self._waiting)

    def __bool__(self):
        """Whether any waits; the program, which asks, has finished with the last one it took."""
        waiting = self._waiting
        if self._has and waiting:
            self._finish()
        self._has = False
        while waiting and waiting[0][2] is not self._link.client._open:
            waiting.pop(0)
        return len(waiting) > 0

    def pop(self, _):
        """Return the first."""
        self._has = True
        return self._waiting[0][0]

    def clear(self):
        """Forget all of it, if nobody here subscribes to the queue: the peer gives it to others."""
        if not any(each[2] and each[1] == self._name for each in self._link.client._standing):
            while self._waiting:
                self._finish()

    def _finish(self):
        _, number, still = self._waiting.pop(0)
        still.remove(number)
        self._link._replan.set()  # it can be acknowledged
