"""The broker's commands: ``broker`` runs it; ``sub pub top ping`` talk to any broker.

What they share: ``failure`` how a command ends that could not do its part, ``options`` the same
words on every command line, ``listening`` subscriptions of which one knows what was kept,
``printable`` bytes made safe. ``sub``: ``message_format``, ``reconnecting``. ``pub``: ``outlet``,
``standard_input``, ``interest``. ``top``: ``traffic`` counts, ``top_view`` shows. ``ping``:
``round_trips``.
"""
