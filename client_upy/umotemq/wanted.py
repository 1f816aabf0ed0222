"""Publish only while somebody listens: what FMQP's feedback topics are for."""


class Publisher:
    """One topic of an FmqpClient; ``wanted`` says whether anybody is subscribed to it.

    ``on_change(wanted)`` is called when that changes. Subscriptions by wildcard count, debug
    subscriptions do not. While the link is down nobody is known to listen.
    """

    def __init__(self, client, topic, on_change=None):
        self.on_change = on_change
        self._client = client
        self._topic = topic
        self._by = set()  # topics that somebody is subscribed to, all equivalent to ours
        self._was = False
        self._connects = -1
        client.subscribe(topic, self._heard, feedback=True)

    @property
    def wanted(self):
        return self._client.up and self._connects == self._connection() and len(self._by) > 0

    def publish(self, payload, cache=False):
        """Publish if wanted, or if ``cache`` is to keep it for later; returns whether it did."""
        if self.wanted or cache:
            self._client.publish(self._topic, payload, cache)
            return True
        return False

    def _heard(self, topic, payload):
        if self._connects != self._connection():
            self._by.clear()  # the broker tells anew on each connection
            self._connects = self._connection()
        if payload:
            self._by.add(topic)
        else:
            self._by.discard(topic)
        wanted = len(self._by) > 0
        if wanted != self._was:
            self._was = wanted
            if self.on_change:
                self.on_change(wanted)

    def _connection(self):
        # Its number, also while it is coming up.
        return self._client.connects + (not self._client.up)
