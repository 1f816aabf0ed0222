"""UMQ against others that publish and subscribe over WebSocket.

``wires`` spells what each of them is told, ``traffic`` measures, ``relay`` is a peer: a broadcast
with aiohttp that knows no topics.
"""
