"""FMQP: publish and subscribe with feedback. No handshake, no acknowledgement, no error packet.

``events`` what is said; ``topics`` which topics are topics; ``dialect`` how flags and topics are
understood; ``codec`` bytes to events; ``spelling`` events to bytes; ``session`` events to bus
commands, and last wills; ``lsb_session`` the same with flags the other way round; ``statistics``
``$/info/messages/second``; ``server`` feedback and ``$/info/clients``.
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""
