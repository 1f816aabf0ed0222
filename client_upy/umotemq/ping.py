"""A ping and its answer, for programs that wait for it. The clients import it then."""

from time import ticks_diff, ticks_us


def ping(client, timeout_ms):
    """What the client's ``ping`` does."""
    start = ticks_us()  # before the write: the answer may be here when it returns
    number = _begin(client)
    while not is_answered(client, number):
        timeout_ms = client._await(timeout_ms, True)
    return ticks_diff(ticks_us(), start)


async def ping_by_tasks(link, timeout_ms):
    """What Aio.ping does."""
    client = link.client
    await link._flush()
    start = ticks_us()
    number = _begin(client)
    await link._flush()
    while not is_answered(client, number):
        timeout_ms = await link._await(timeout_ms, True)
    return ticks_diff(ticks_us(), start)


def is_answered(client, number):
    """Say whether the answer to this ping came, or to a later one: the broker works in order."""
    # Of LightMQ's numbers many are no ping's: all of their 16 bits count.
    return client.up and client._pong - number & 0xFFFF <= client._ping - number & 0xFFFF


def _begin(client):
    # Ask for a new sign of life; return its number.
    client._push()
    number = client._ping
    client._ask(True)
    if client._ping == number and not hasattr(client, "_full"):  # MicroMsg2 waits for an ack
        raise ValueError("a client without a name has no ping")
    client._push()
    return client._ping
