"""The broker's commands: ``broker`` runs it; ``sub pub top ping call`` talk to any broker.

What they share: ``failure`` how a command ends that could not do its part, ``options`` the same
words on every command line, ``reconnecting`` what happens when the broker is lost, ``listening``
subscriptions of which one knows what was kept, ``printable`` bytes made safe. ``sub``: ``wanted``
which messages, ``topic_filter``, ``message_format`` and ``format_string`` how they are written.
``pub``: ``source`` of its messages, ``standard_input``, ``outlet`` one connection, ``interest`` of
others, ``delivery`` through many connections. ``top``: ``traffic`` counts, ``top_view`` shows,
``keyboard``. ``ping``: ``round_trips``.
"""
