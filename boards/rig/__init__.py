"""The rig: flash, install, check and judge every board on the desk, in parallel.

The parent (``cli``, ``crew``, ``show``, ``events``) schedules and writes; one ``worker`` process
per board owns the board's serial port and runs ``steps`` and ``checks``, talking to the board
through ``agent`` and to the broker through ``observer``.
"""
