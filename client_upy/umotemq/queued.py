"""What came of a MicroMsg2 queue under asyncio, until the program has finished with it.

umotemq.messages imports it for whoever subscribes to a queue.
"""

from umotemq.link import encoded


class Held:
    """As the list of umotemq.messages; what was appended is not acknowledged before it is finished.

    The program has finished with what it took when it asks whether there is more. No more comes
    than the window, as nothing is acknowledged that is here, nor anything behind it. What came by a
    link that is lost is thrown away: it comes again by the next one.
    """

    def __init__(self, link, name):
        self._link = link
        self._name = encoded(name)
        self._waiting = []  # topic, payload
        # For each of those, behind the one that the program has: its number, and the list of its
        # link that says what is not finished with.
        self._numbers = []

    def append(self, message):
        """Take a message, in its handler."""
        still = self._link.client._open
        number = still[-1]
        still.append(number)
        self._numbers.append((number, still))
        self._waiting.append(message)

    def __len__(self):
        """Return how many wait."""
        return len(self._waiting)

    def __bool__(self):
        """Whether any waits; the program, which asks, has finished with the last one it took."""
        waiting = self._waiting
        numbers = self._numbers
        if len(numbers) > len(waiting):
            self._finish()
        while numbers and numbers[0][1] is not self._link.client._open:
            numbers.pop(0)
            waiting.pop(0)
        return bool(waiting)

    def pop(self, _):
        """Return the first."""
        return self._waiting.pop(0)

    def clear(self):
        """Forget all of it, if nobody here subscribes to the queue: the peer gives it to others."""
        if not any(each[2] and each[1] == self._name for each in self._link.client._standing):
            self._waiting.clear()
            while self._numbers:
                self._finish()

    def _finish(self):
        number, still = self._numbers.pop(0)
        still.remove(number)
        self._link._replan.set()  # it can be acknowledged
