"""Peers: who counts as one client by its address, and how many connections each has.

Laws
- An IPv4 address is one peer. So is a whole /64 of IPv6: that is what one machine is given, and it
  could otherwise be as many peers as it likes. IPv4 written as IPv6 is that IPv4 address.
- Behind a proxy an address says who the proxy is, not who the client is: with ``behind_proxy``
  nobody is told apart by address. ``X-Forwarded-For`` is never read: anybody can write it.
- A Unix socket has no address, and so no peers.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

NOBODY = ""
"""The peer of whoever cannot be told apart."""

_V6_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def peer_of(host: str) -> str:
    """The peer that an address belongs to; anything that is no address stands for itself."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _V6_NETWORK_BITS), strict=False))


@lru_cache(maxsize=4096)
def is_loopback(peer: str) -> bool:
    """Whether a peer is this machine itself."""
    try:
        return ipaddress.ip_network(peer).is_loopback or peer == str(_V6_HERE)
    except ValueError:
        return False


_V6_HERE = ipaddress.IPv6Network(("::1", _V6_NETWORK_BITS), strict=False)


class Peers:
    """Open connections of one listener, by peer."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, peer: str) -> int:
        """A connection of this peer was opened; how many it has now."""
        here = self._open.get(peer, 0) + 1
        self._open[peer] = here
        return here

    def leave(self, peer: str) -> None:
        """One of its connections has ended."""
        here = self._open[peer] - 1
        if here:
            self._open[peer] = here
        else:
            del self._open[peer]
