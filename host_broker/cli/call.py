"""``motemq call``: ask a LightMQ client that is connected to a broker."""

import time
from pathlib import Path

import click

from host_broker.cli.completion import complete_callable
from host_broker.cli.failure import OutOfTime, failing_clearly
from host_broker.cli.message_format import payload_fields
from host_broker.cli.options import Seconds, timeout_option, url_argument, usage_errors
from host_broker.cli.source import Source, content
from host_broker.cli.standard_input import StandardInput
from host_broker.cli.standard_output import put
from host_broker.client import ClientError, Timeout, connect
from host_broker.printable import json_text, printable


@click.command()
@url_argument
@click.argument("client_id", metavar="ID", shell_complete=complete_callable)
@click.argument("data", required=False)
@click.option(
    "-m", "--message", "text", metavar="TEXT", help="The same as DATA; may begin with '-'."
)
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Send what is in FILE.",
)
@click.option("-s", "--stdin", "whole", is_flag=True, help="Send all of stdin in one call.")
@click.option("-l", "--lines", is_flag=True, help="Send each line of stdin in a call of its own.")
@click.option(
    "-W",
    "--timeout",
    "wait_s",
    type=Seconds(min=0.0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the client may take for an answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per answer.")
@click.option("--hex", "hexadecimal", is_flag=True, help="Print answers as hexadecimal digits.")
@click.option(
    "--output",
    type=click.Choice(["line", "raw"]),
    default="line",
    show_default=True,
    help="A safe line per answer, or its bytes and nothing else.",
)
@timeout_option
def command(
    url: str,
    client_id: str,
    data: str | None,
    text: str | None,
    file: Path | None,
    whole: bool,
    lines: bool,
    wait_s: float,
    as_json: bool,
    hexadecimal: bool,
    output: str,
    timeout_s: float,
) -> None:
    """SEND DATA (text), a file or stdin to the LightMQ client ID and print its SENDRESP.

    URL is the broker's, whatever it speaks: lightmq://host:port, fmqp://host:port or
    lightmq+fmqp://host:port; with /client-id or a token_file if the broker wants to know who calls.

    Lines are UTF-8; bytes that are none and control characters are written as \\xNN or \\n. For
    exact bytes take --json, --hex or --output raw. An answer may be empty: the client has taken it.

    Exit codes: 0 answered, 1 no connection, or ID is not connected to the broker or went away, 2
    wrong arguments, 124 no answer within --timeout, 130 Ctrl-C.
    """
    if sum([data is not None, text is not None, file is not None, whole, lines]) != 1:
        raise click.UsageError("give one of DATA, --message, --file, --stdin, --lines")
    if sum([as_json, hexadecimal, output == "raw"]) > 1:
        raise click.UsageError("choose one of --json, --hex, --output raw")
    said = (data or text or "").encode("utf-8", "surrogateescape")
    source = Source(said if file is None else content(file), whole, lines, repeat=1)
    with (
        failing_clearly("call", ClientError),
        usage_errors(),
        connect(url, timeout_s=timeout_s, calls=client_id) as client,
    ):
        for body in source.messages(StandardInput(lambda: client.wait(0.0))):
            started = time.perf_counter()
            try:
                answer = client.call(client_id, body, wait_s)
            except Timeout as error:
                raise OutOfTime(f"'{client_id}' did not answer within {wait_s:g} s") from error
            elapsed_s = time.perf_counter() - started
            if as_json:
                put(_json(client_id, answer, elapsed_s))
            elif output == "raw":
                put(answer)
            else:
                put(f"{answer.hex() if hexadecimal else printable(answer)}\n".encode())


def _json(client_id: str, answer: bytes, elapsed_s: float) -> bytes:
    fields: dict[str, object] = {"client": client_id, **payload_fields(answer)}
    fields["round_trip_us"] = round(elapsed_s * 1e6, 1)
    return json_text(fields).encode() + b"\n"
