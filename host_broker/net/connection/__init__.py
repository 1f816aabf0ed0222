"""Connections: the event loop's selector, plain sockets, back-pressure, slow and silent peers.

``poller`` waits for all sockets; ``stream`` is one plain socket (TLS is asyncio's); ``connection``
is what the broker knows of either; ``overflow`` drops for slow receivers; ``stalls`` remembers who
stalled; ``tuning`` sets socket options; ``idle_timeout`` closes silent connections.
"""
