"""A board that falls silent: its last will is published, though its connection stays open."""

import os
import signal
from pathlib import Path

from host_broker.client import Client, connect
from tests.client_upy.interpreters import Interpreter
from tests.host_broker.net.broker_process import broker

_LISTEN = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq+fmqp://127.0.0.1:0"]
_QUICK = ["--set", "lightmq.ping_interval_s=0.3", "--set", "lightmq.ping_timeout_s=0.5"]
_PROGRAM = """
import sys
from umotemq.carried import Carried
from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.tcp import Tcp

session = LightmqClient(Tcp("127.0.0.1", int(sys.argv[1])), b"mortal", tx_size=262)
client = FmqpClient(Carried(session), tx_size=256, keepalive_ms=60000)
client.connect(timeout_ms=5000)
client.publish(b"will", b"gone", will=True)
client.publish(b"will", b"here")
for _ in range(60):
    client.poll(1000)
"""


def test_a_stopped_board(interpreter: Interpreter, tmp_path: Path) -> None:
    """SIGSTOP: the kernel goes on acknowledging what the broker sends, but there is no PONG."""
    script = tmp_path / "mortal.py"
    script.write_text(_PROGRAM)
    with broker(*_LISTEN, *_QUICK) as running, connect(running.urls["fmqp"]) as watcher:
        watcher.subscribe("will")
        watcher.sync()
        with interpreter.start(script, str(running.ports["lightmq+fmqp"])) as process:
            try:
                assert _next(watcher) == b"here"
                # PINGs are answered, for longer than a silent one would live.
                assert watcher.receive(1.5) is None
                os.kill(process.pid, signal.SIGSTOP)
                assert _next(watcher) == b"gone"
                assert process.poll() is None
            finally:
                process.kill()


def _next(watcher: Client) -> bytes:
    message = watcher.receive(20.0)
    assert message is not None
    return message.payload
