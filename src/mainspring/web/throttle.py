"""Limits wrong tokens and passwords by address."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

ATTEMPTS = 10
"""Wrong attempts that an address may make at once."""
PAUSE = 6
"""Seconds after which an address gets one more attempt."""
_MOST_ADDRESSES = 10_000
_NETWORK_BITS = 64


@dataclass(slots=True)
class _Account:
    left: float
    at: int


class Throttle:
    """Counts wrong attempts by address, in memory: each process counts on its own."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def wait(self, address: str, now: int) -> int:
        """Return the seconds until the next attempt from an address is checked; 0: now."""
        account = self._accounts.get(address)
        left = ATTEMPTS if account is None else self._left(account, now)
        return 0 if left >= 1 else max(1, round((1 - left) * PAUSE))

    def failed(self, address: str, now: int) -> None:
        """Count a wrong attempt."""
        account = self._accounts.pop(address, None) or _Account(ATTEMPTS, now)
        self._accounts[address] = _Account(self._left(account, now) - 1, now)
        if len(self._accounts) > _MOST_ADDRESSES:
            del self._accounts[next(iter(self._accounts))]

    @staticmethod
    def _left(account: _Account, now: int) -> float:
        return min(ATTEMPTS, account.left + (now - account.at) / (PAUSE * SECOND))


def address_of(request: HTTPConnection) -> str:
    """Return the address that a request comes from. For IPv6 it is the network, because one client has a whole network."""
    host = request.client.host if request.client else "a local socket"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False))
