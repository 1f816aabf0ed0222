"""The telemetry app: a minute of simulated readings, as docs/node.md says.

``main()`` is what ``main.py`` starts; the agent uses ``load`` and ``Connection``.
"""

import json
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

CONFIG = "node.json"  # relative: boards start in /, tests on a PC in a folder of their own
_POLL_EVERY = 8  # messages; a look at the line costs about as much as a message
_ANSWER_MS = 10000  # how long the broker may take to confirm everything
_CONNECT_MS = 20000

# name, unit, middle and half range in hundredths, messages per period
_SENSORS = (
    ("temperature", "C", 2150, 350, 240),
    ("humidity", "%", 4800, 900, 330),
    ("pressure", "hPa", 101325, 450, 510),
)


def load(path=CONFIG):
    """Return the configuration. Raises OSError or ValueError that name the file."""
    try:
        with open(path) as file:
            text = file.read()
    except OSError as error:
        raise OSError("%s: cannot be read: %s; install it with the node" % (path, error))
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise ValueError("%s: not a JSON object" % path)
    where = {"uart": ("uart",), "console": ()}.get(config.get("transport"), ("host", "port"))
    for key in ("board", "protocol", "transport") + where:
        if key not in config:
            raise ValueError('%s: "%s" is missing' % (path, key))
    if config["protocol"] not in ("fmqp", "lightmq"):
        raise ValueError('%s: "protocol" is neither fmqp nor lightmq' % path)
    return config


def transport(config):
    """Return what the configuration calls the way to the broker, not opened yet."""
    if config["transport"] == "console":
        from umotemq.console import Console
        from umotemq.reliable import Reliable

        return Reliable(Console(), config.get("patience_ms", 5000))
    if config["transport"] == "uart":
        from umotemq.uart import Uart

        line = config["uart"]
        # Silent between tries, not before the first: usually there is no old session.
        quiet_ms = config.get("quiet_ms", 0)
        way = Uart(line["id"], line["baud"], line.get("tx"), line.get("rx"), quiet_ms=quiet_ms)
        if line.get("reliable"):
            from umotemq.reliable import Reliable

            way = Reliable(way, line.get("patience_ms", 5000))
        return way
    tls = config.get("tls")
    if tls:
        from binascii import a2b_base64

        from umotemq.tls import Tls

        ca, cert, key = [a2b_base64(tls[name]) for name in ("ca", "cert", "key")]
        return Tls(config["host"], config["port"], tls["name"], ca=ca, cert=cert, key=key)
    from umotemq.tcp import Tcp

    return Tcp(config["host"], config["port"])


class Connection:
    """A client of the configured protocol, which the broker has answered.

    ``client_id``: text; ``handler(data)`` gets the SENDs of a LightMQ broker. Tries again until
    ``timeout_ms`` have passed, silent between tries for so long that a raw bridge closes the
    session which an earlier life of this board may have left open. Raises OSError.

    A link that is lost later is not opened again: the telemetry has no gaps, or it failed.
    """

    def __init__(self, config, client_id, timeout_ms=_CONNECT_MS, handler=None):
        self.is_fmqp = config["protocol"] != "lightmq"
        self._config = config
        quiet_ms = 3 * config.get("keepalive_ms", 500) + 1000
        try_ms = 10000 if config.get("tls") else 3000  # its handshake is hard work for a board
        until = ticks_add(ticks_ms(), timeout_ms)
        while True:
            left = ticks_diff(until, ticks_ms())
            self.client = self._client(client_id.encode(), handler)
            try:
                self.client.connect(timeout_ms=min(left, try_ms))
                return
            except OSError:
                self.client.close()
                if ticks_diff(until, ticks_ms()) <= quiet_ms:
                    raise
            sleep_ms(quiet_ms)

    def _client(self, client_id, handler):
        config = self._config
        way = transport(config)
        options = {
            "keepalive_ms": config.get("keepalive_ms", 500),
            "timeout_ms": config.get("answer_ms", 5000),
            "retry_ms": config.get("retry_ms", 0),
            "retry_max_ms": config.get("retry_max_ms", 30000),
            "rx_size": 1024,
            "tx_size": 1024,
        }
        if config["protocol"] == "carried":
            from umotemq.carried import Carried
            from umotemq.lightmq import LightmqClient

            way = Carried(LightmqClient(way, client_id, rx_size=1024, tx_size=1030))
        # Import one protocol only: each costs a few KB of heap.
        if self.is_fmqp:
            from umotemq.fmqp import FmqpClient

            return FmqpClient(way, name=client_id, **options)
        from umotemq.lightmq import LightmqClient

        return LightmqClient(way, client_id, handler=handler, **options)

    def send(self, topic, payload):
        """Publish, or post to LightMQ's broker (which has no topics)."""
        if self.is_fmqp:
            self.client.publish(topic, payload)
        else:
            self.client.post(payload, _ANSWER_MS)

    def confirm(self, timeout_ms=_ANSWER_MS):
        """Return when the broker has processed all that was sent. Raises OSError."""
        if self.is_fmqp:
            self.client.ping(timeout_ms)
        else:
            self.client.flush(timeout_ms)


def _value(phase, middle, half, period):
    # A triangle wave: integers until the last step, as floats differ between boards.
    phase = phase % period
    rise = phase if phase * 2 < period else period - phase
    return (middle - half + 4 * half * rise // period) / 100


def reading(board, seq, rate_hz):
    """Return message ``seq`` of the simulated minute as (sensor, message)."""
    sensor, unit, middle, half, period = _SENSORS[seq % len(_SENSORS)]
    # Every board lives through its own weather: its name shifts the wave.
    phase = seq + 29 * sum(board.encode())
    return sensor, _message(
        board, seq, seq * 1000 // rate_hz, sensor, unit, _value(phase, middle, half, period)
    )


def _message(board, seq, t_ms, sensor, unit, value):
    return {
        "v": 1,
        "board": board,
        "seq": seq,
        "t_ms": t_ms,
        "sensor": sensor,
        "unit": unit,
        "value": value,
    }


def send_telemetry(config, connection):
    """Send the simulated readings and the end message; return how many readings that were."""
    board = config["board"]
    telemetry = config.get("telemetry") or {}
    seconds = telemetry.get("seconds", 60)
    rate_hz = telemetry.get("rate_hz", 10)
    count = seconds * rate_hz
    topics = {s[0]: ("telemetry/%s/%s" % (board, s[0])).encode() for s in _SENSORS}
    for seq in range(count):
        sensor, message = reading(board, seq, rate_hz)
        connection.send(topics[sensor], json.dumps(message).encode())
        if seq % _POLL_EVERY == 0:
            connection.client.poll(0)
        if seq % 100 == 99:
            print("node: sent %d/%d" % (seq + 1, count))
    end = _message(board, count, seconds * 1000, "end", "count", count)
    connection.send(("telemetry/%s/end" % board).encode(), json.dumps(end).encode())
    connection.confirm()
    return count


def main(path=CONFIG):
    """Connect, send, close; print the progress. Returns whether all went well."""
    try:
        config = load(path)
        connection = Connection(config, config["board"], config.get("connect_ms", _CONNECT_MS))
        print("node: connected")
        try:
            count = send_telemetry(config, connection)
        finally:
            connection.client.close()
    except Exception as error:  # whatever it was, the console's reader wants it in one line
        parts = [str(part) for part in error.args]
        text = ": ".join(parts) if len(parts) > 1 else str(error)
        print("node: failed: %s" % (text or type(error).__name__))
        return False
    print("node: done %d" % count)
    return True
