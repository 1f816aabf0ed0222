"""The fault proxy: between boards and their broker, to do to a line what a desk cannot.

One process a run (``python -m boards.faults``, started by ``process``). A board has a *route*: a
port of its own, and the broker behind it. ``relay`` is one connection, without I/O: it forwards,
delays, holds everything back (a black hole) or is cut by a FIN or a RST. ``trace`` is what it saw,
in ns of the host's monotonic clock: the evidence of how a board died. ``route`` and ``service``
run the sockets, ``control`` is how the rig says what to do.
"""
