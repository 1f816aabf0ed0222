"""Publish only while somebody listens: what FMQP's feedback topics are for."""


class Publisher:
    """One topic of an FmqpClient; ``wanted`` says whether anybody is subscribed to it.

    ``on_change(wanted)`` is called when that changes, also when the link is lost: while it is
    down nobody is known to listen. Subscriptions by wildcard count, debug subscriptions do not.
    """

    def __init__(self, client, topic, on_change=None):
        self.on_change = on_change
        self._client = client
        self._topic = topic
        self._by = set()  # topics that somebody is subscribed to, all equivalent to ours
        client._on_drop.append(self._forget)
        client.subscribe(topic, self._heard, feedback=True)

    @property
    def wanted(self):
        return self._client.up and len(self._by) > 0

    def publish(self, payload, *, retain=False):
        """Publish if wanted, or if ``retain`` is to keep it for later; returns whether it did."""
        if self.wanted or retain:
            self._client.publish(self._topic, payload, retain=retain)
            return True
        return False

    def _heard(self, topic, payload):
        by = self._by
        was = len(by) > 0
        if payload:
            by.add(topic)
        else:
            by.discard(topic)
        self._changed(was)

    def _forget(self):
        # The link is lost; the broker tells anew on the next one.
        was = len(self._by) > 0
        self._by.clear()
        self._changed(was)

    def _changed(self, was):
        wanted = len(self._by) > 0
        if wanted != was and self.on_change:
            self.on_change(wanted)
