"""Addresses to listen on: what is one, and which stay on this machine."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.settings import Address
from service.settings.address import BadAddress

PORTS = st.integers(0, 65535)
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,5})?", fullmatch=True)


@given(st.ip_addresses(v=4), PORTS)
def test_version_4(host: ipaddress.IPv4Address, port: int) -> None:
    """Every IPv4 address with a port is read and written back as it was."""
    address = Address.parse(f"{host}:{port}")
    assert (address.host, address.port, str(address)) == (str(host), port, f"{host}:{port}")
    assert address.is_loopback == host.is_loopback


@given(st.ip_addresses(v=6), PORTS)
def test_version_6(host: ipaddress.IPv6Address, port: int) -> None:
    """Every IPv6 address needs brackets and is then read and written back as it was."""
    address = Address.parse(f"[{host}]:{port}")
    assert (address.host, address.port, str(address)) == (str(host), port, f"[{host}]:{port}")
    with pytest.raises(BadAddress):
        Address.parse(f"{host}:{port}")


@given(NAMES, PORTS)
def test_names(host: str, port: int) -> None:
    """A name is taken as it stands; only ``localhost`` is known to stay on this machine."""
    address = Address.parse(f"{host}:{port}")
    assert (address.host, address.port) == (host, port)
    assert address.is_loopback == (host == "localhost")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_socket_paths(path: str) -> None:
    """Any printable path that fits a socket's address is one, and it is loopback."""
    assume(path.isprintable())
    if len(path.encode()) > 107:
        with pytest.raises(BadAddress):
            Address.parse(f"unix:{path}")
        return
    address = Address.parse(f"unix:{path}")
    assert address == Address(path=path)
    assert address.is_unix
    assert address.is_loopback
    assert str(address) == f"unix:{path}"


@given(st.text())
def test_anything_else_is_refused(text: str) -> None:
    """Whatever the text, the parser answers with an address that reads back, or refuses."""
    try:
        address = Address.parse(text)
    except BadAddress:
        return
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "8000", ":8000", "host", "host:", "host:-1", "host:+1", "host:65536", "host:1e3",
        "host:\uff18\uff10", "host:80 ", " host:80", "ho st:80", "host\n:80", "host:80\n", "-h:80",
        "256.0.0.1:80", "127.1:80", "1:80", "127.0.0.1.:80", "::1:80", "[::1]", "[::1]80",
        "[127.0.0.1]:80", "[::1%a b]:80", "[]:80", "http://host:80", "user@host:80", "a:b:80",
        "unix:", "unix:a\nb", "unix:a\x00b", "unix:\ud800", "unix:" + "x" * 108, "*:80",
        "a" * 254 + ":80",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    """What is no address is refused, not repaired."""
    with pytest.raises(BadAddress):
        Address.parse(text)


@pytest.mark.parametrize(
    "text, loopback",
    [
        ("127.0.0.1:0", True), ("127.255.0.3:1", True), ("[::1]:1", True), ("LocalHost:1", True),
        ("unix:s", True), ("0.0.0.0:1", False), ("[::]:1", False), ("192.168.0.1:1", False),
        ("[fe80::1%eth0]:1", False), ("localhost.example:1", False), ("0x7f.1:1", False),
    ],
)  # fmt: skip
def test_loopback(text: str, loopback: bool) -> None:
    """Only an address that cannot leave the machine by its very form is loopback."""
    assert Address.parse(text).is_loopback is loopback
