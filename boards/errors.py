"""What all errors of the rig have in common."""


class RigError(Exception):
    """The rig could not do its part, and the text says why: no verdict on the code under test."""
