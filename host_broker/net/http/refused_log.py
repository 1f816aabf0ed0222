"""What HTTP clients say that is no HTTP: a line of the log each, and not too many."""

import asyncio
import logging

from aiohttp.http_exceptions import HttpProcessingError

from host_broker.net.rate_limited_log import RateLimitedLog

_LONGEST_REASON = 120  # characters; some repeat what the client said


class _RefusedLog(logging.Filter):
    """Of aiohttp's log: such clients are told in one line; all else stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._log = RateLimitedLog(asyncio.get_running_loop().call_later)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        peer = str(record.args[0] if isinstance(record.args, tuple) and record.args else "")
        reason = error.message.splitlines()[0][:_LONGEST_REASON]
        kind = type(error).__name__
        self._log.write(peer, kind, f"HTTP: {peer or 'a client'} was refused ({kind}): {reason}")
        return False


def quiet_logger() -> logging.Logger:
    """Return a logger for aiohttp's server, which logs a traceback for each such client."""
    logger = logging.getLogger("host_broker.net.http.aiohttp")
    logger.filters[:] = [_RefusedLog()]
    return logger
