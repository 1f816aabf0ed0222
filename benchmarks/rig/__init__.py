"""Runs of the rig in a row: how long each took, and what failed that should not have."""
