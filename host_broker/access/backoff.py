"""Who has to wait after failed logins, by address."""

import ipaddress
from collections import OrderedDict

_FIRST_S = 1.0
_MOST_KEYS = 20_000
_MANY_NAMES = 10  # times as many failures of an address, whatever the names, are as bad


class LoginBackoff:
    """Counts failures of each address and name, and of each address.

    After ``failures`` of them the next try has to wait 1 s, then 2, 4 … at most ``longest_s``, and
    what is tried meanwhile is refused without being looked at. A board with a wrong secret keeps
    nobody else behind its address waiting; who tries many names does, after ten times as many. It
    is forgotten ``longest_s`` after the end of the wait. Of IPv6 an address is its network, /64.
    """

    def __init__(self, failures: int = 5, longest_s: float = 60.0) -> None:
        self.counted = 0  # failures since the start
        self._failures = failures
        self._longest_s = longest_s
        # By address and name, the one that failed last at the end: failures, until when it waits.
        self._failed: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def wait_s(self, address: str, name: str, now: float) -> float:
        """Return how long a login is refused, 0 = it may be tried."""
        network = _network(address)
        waits = [self._failed.get(key, (0, now))[1] for key in ((network, name), (network, ""))]
        return max(0.0, max(waits) - now)

    def failed(self, address: str, name: str, now: float) -> None:
        """Take note of a wrong secret or an unknown name."""
        self.counted += 1
        network = _network(address)
        keys = [((network, ""), self._failures * _MANY_NAMES)]
        if name:
            keys.append(((network, name), self._failures))
        for key, most in keys:
            count, until = self._failed.pop(key, (0, now))
            if now - until > self._longest_s:
                count = 0
            count += 1
            wait_s = 0.0
            if count >= most:
                wait_s = min(_FIRST_S * 2 ** min(count - most, 32), self._longest_s)
            self._failed[key] = count, now + wait_s
        while len(self._failed) > _MOST_KEYS:
            self._failed.popitem(last=False)

    def change(self, failures: int, longest_s: float) -> None:
        """Have other limits from now on."""
        self._failures, self._longest_s = failures, longest_s


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
