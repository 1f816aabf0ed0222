"""The broker's commands: ``broker`` runs it; ``pub``, ``sub`` and ``ping`` talk to any broker.

``failure`` is how a command ends that could not do its part.
"""
