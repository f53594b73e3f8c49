"""An address to listen on: ``host:port``, ``[v6]:port`` or ``unix:PATH``.

Parsing looks nothing up: a name is taken as it stands, and only addresses that cannot leave the
machine by their very form count as loopback.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Self

MOST_PATH_BYTES = 107
"""Linux keeps a socket's path in 108 bytes with a zero at the end."""

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\Z")
_V6 = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")


class BadAddress(ValueError):
    """Not an address; holds nothing of what was given."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen.

    Attributes:
        host: name or IP address without brackets, empty for a Unix socket.
        port: 0 lets the system pick one; 0 for a Unix socket too.
        path: of a Unix socket, else empty.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address.

        Raises:
            BadAddress: it has none of the three forms.
        """
        if text.startswith("unix:"):
            return cls(path=_socket_path(text.removeprefix("unix:")))
        host, colon, port = text.rpartition(":")
        if not colon or not _PORT.match(port) or int(port) > 65535:  # noqa: PLR2004 - 16 bits
            raise BadAddress
        return cls(host=_host(host), port=int(port))

    @property
    def is_unix(self) -> bool:
        """Whether it is a Unix socket."""
        return bool(self.path)

    @property
    def is_loopback(self) -> bool:
        """Whether nothing outside this machine can connect."""
        if self.is_unix or self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # any other name may resolve to anything

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _socket_path(path: str) -> str:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise BadAddress from None
    if not 1 <= size <= MOST_PATH_BYTES or not path.isprintable():
        raise BadAddress
    return path


def _host(host: str) -> str:
    try:
        if v6 := _V6.match(host):
            return str(ipaddress.IPv6Address(v6[1]))
        if re.fullmatch(r"[0-9.]+", host):  # digits and dots are an IPv4 address or a mistake
            return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise BadAddress from None
    if not _NAME.match(host):
        raise BadAddress
    return host
