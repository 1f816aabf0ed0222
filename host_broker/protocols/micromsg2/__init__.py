"""MicroMsg2: negotiated extensions, acknowledged messages, filtered subscriptions.

``events`` what is said; ``grammar`` the three small languages inside frames; ``codec`` bytes to
events and back; ``extensions`` those that there are; ``negotiation`` the handshake;
``windows`` who acknowledges what, and when; ``assembly`` fragments to messages; ``refusal`` why a
connection ends.
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``, which also says what
is still to come: no listener speaks it yet.
"""
