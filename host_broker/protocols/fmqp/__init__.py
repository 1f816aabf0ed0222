"""FMQP: publish and subscribe with feedback. No handshake, no acknowledgement, no error packet.

``events`` what is said; ``topics`` which topics are topics; ``codec`` bytes to events and back;
``session`` events to bus commands, and last wills; ``statistics`` ``$/info/messages/second``;
``server`` feedback and ``$/info/clients``.
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""
