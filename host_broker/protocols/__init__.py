"""One folder per wire language: events, codec, session. They never import each other.

``host_broker.protocol`` says what a protocol brings; ``host_broker.registry`` names them all. A new
one is a folder, a line in the registry (or an entry point) and a file of vectors: see
docs/own-protocol.md.
"""
