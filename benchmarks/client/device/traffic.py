"""What is published and received in every measurement."""

TOPIC = b"bench/home/00001"  # 16 bytes
PAYLOAD = b"x" * 64
# The endpoint does what is published to these.
SINK = b"bench/sink/00001"
# As a node with several sensors publishes: one after the other, each of its own length.
SINKS = (b"bench/temperature", b"bench/humidity", b"bench/pressure", b"bench/light")
ECHO = b"bench/echo/00001"
BURST = b"bench/burst"  # payload: how many messages, all at once
DRIP = b"bench/drip"  # payload: how many messages, each by itself
ABSORB = b"bench/absorb"  # payload: how many bytes it shall take and not look at
