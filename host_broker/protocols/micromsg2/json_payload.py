"""What the extension ``json`` allows: payloads that are JSON."""

import json
import sys


class _NoConstant(ValueError):
    """``NaN`` and its like, which Python's reader takes."""


def json_fault(payload: bytes) -> str:
    """Return what keeps a payload from being JSON that can be read, "" if nothing does."""

    def constant(name: str) -> None:
        raise _NoConstant(f"{name} is not JSON")

    try:
        json.loads(payload.decode(), parse_constant=constant)
    except (json.JSONDecodeError, UnicodeDecodeError, _NoConstant, RecursionError) as error:
        return f"the payload is not JSON: {error}"
    except ValueError:
        return f"an integer in the payload has more than {sys.get_int_max_str_digits()} digits"
    return ""
