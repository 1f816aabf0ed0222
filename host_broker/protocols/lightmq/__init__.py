"""LightMQ: a client with a name, PING and PONG, SEND and SENDRESP.

``events`` what is said; ``dialects`` the two numberings in use; ``codec`` bytes to events and
back; ``paths`` where a client lives on the bus; ``session`` phases, names, silence; ``use`` what an
accepted client's SENDs are for: a ``mailbox`` on the bus (``responders`` answer what it sends), a
``caller`` of another client, a ``carrier`` of another protocol; ``server`` makes them all, with
``admission`` and what is ``shared``.
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""
