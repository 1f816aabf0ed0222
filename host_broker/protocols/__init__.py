"""One folder per wire language: events, codec, session. They never import each other.

``session`` is what the broker asks of each; ``registry`` names them. A new protocol is a folder,
a line in the registry and a file of vectors.
"""
