"""fq: exchanges, programs, competing queues, peers.

``events`` what is said; ``codec`` bytes to events and back; ``topics`` exchange and route on the
bus; ``programs`` what a binding wants; ``queues`` their names, kinds and clients; ``session`` the
two connections of a client; ``server`` what they share; ``settings`` the section [fq].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""
