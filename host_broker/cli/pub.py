"""``motemq pub``: publish one message."""

import click

from host_broker.cli.failure import failing_clearly
from host_broker.cli.options import connected, timeout_option, url_argument
from host_broker.client import ClientError, LightmqClient


@click.command()
@url_argument
@click.argument("topic")
@click.argument("payload")
@click.option("--retain", is_flag=True, help="The broker keeps it for later subscribers (FMQP).")
@click.option("--will", is_flag=True, help="The broker publishes it when we disconnect (FMQP).")
@timeout_option
def command(url: str, topic: str, payload: str, retain: bool, will: bool, timeout_s: float) -> None:
    """Publish PAYLOAD (text) under TOPIC at the broker URL, and wait until it has been taken.

    URL is fmqp://host:port, or lightmq://host:port/client-id, where TOPIC is 'up' and the broker
    carries the message as lightmq/CLIENT-ID/up. An empty PAYLOAD with --retain clears what is kept.

    Exit codes: 0 taken by the broker, 1 not, 2 wrong arguments, 130 Ctrl-C.
    """
    body = payload.encode("utf-8", "surrogateescape")
    with failing_clearly("pub", ClientError), connected(url, timeout_s) as client:
        if isinstance(client, LightmqClient):
            if topic != "up" or retain or will:
                raise click.UsageError(
                    "LightMQ has no topics, retained messages or wills: a client can only send "
                    f"up; write: motemq pub {url} up PAYLOAD"
                )
            client.send(body, timeout_s)
            return
        client.publish(topic, body, cache=retain, will=will)
        client.sync(timeout_s)
