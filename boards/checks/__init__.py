"""What every board must do: one file per family of checks, one function per check.

``declared`` says what a check and a measurement are; ``registry`` has all of them, in the order in
which they run, and chooses by name. A family is a module with a tuple ``CHECKS``: ``pubsub``,
``ping``, ``last_will``, ``heap``. A new family is a module and a line in ``registry``.
"""
