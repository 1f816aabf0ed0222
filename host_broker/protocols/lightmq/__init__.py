"""LightMQ: a client with a name, PING and PONG, SEND and SENDRESP.

``events`` what is said; ``dialects`` the two numberings in use; ``codec`` bytes to events and
back; ``paths`` where a client lives on the bus; ``session`` phases, timeouts, correlation;
``server`` who is connected under which name.
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""
