"""One board from blank to verdict: lock, flash, install, check, telemetry, restore.

In a run the parent (``run``, ``worker_pool``, ``event_writer``) schedules and writes; one
``worker`` process per board owns the board's serial port and does the ``steps``. A check gets a
``BoardSession``: it talks to the board through the agent there, to the broker by an ``observer``.
"""
