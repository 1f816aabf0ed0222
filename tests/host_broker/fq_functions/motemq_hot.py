"""``json_above("temp", 30)``: messages whose JSON says more than 30 of temp."""

import json

from host_broker.protocols.fq.functions import RouteFunction


def json_above(route: bytes, payload: bytes, member: bytes, limit: float) -> bool:
    """Whether the payload is a JSON object with a number above ``limit`` under that name."""
    try:
        found = json.loads(payload)[member.decode()]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return type(found) in (int, float) and found > limit


JSON_ABOVE = RouteFunction("json_above", "sd", json_above)
