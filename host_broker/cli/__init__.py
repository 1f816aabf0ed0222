"""The broker's commands: ``broker`` runs it; ``sub pub top ping call`` talk to any broker.

What they share: ``failure`` how a command ends that could not do its part, ``options`` the same
words on every command line, ``outages`` what is said of lost connections, ``completion`` what Tab
completes, ``printable`` bytes made safe. ``sub``: ``wanted`` which messages, ``message_format``
and ``format_string`` how they are written. ``pub``: ``source`` of its messages,
``standard_input``, ``interest`` of others. ``top``: ``traffic`` counts, ``top_view`` shows,
``screen``, ``keyboard``. ``ping``: ``round_trips``.
"""
