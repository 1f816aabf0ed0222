"""What the extension ``json`` allows: payloads that are JSON."""

import json


def json_fault(payload: bytes) -> str:
    """Return what keeps a payload from being JSON, "" if nothing does."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        json.loads(payload.decode(), parse_constant=constant)
    except (ValueError, RecursionError) as error:
        return f"the payload is not JSON: {error}"
    return ""
