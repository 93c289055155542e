"""Decides which host names and addresses are loopback, and which addresses are one client."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network


NETWORK_BITS = 64
"""The part of an IPv6 address that is one client."""


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address; other names are not resolved, and count as not loopback.

    Args:
        host: a name or an address, without port and brackets.
    """
    if host.lower() == "localhost":
        return True
    try:
        return _address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def address_key(address: str | None) -> str:
    """The key of a client of which only the address is known; no name of a subject is equal to one.

    IPv6 addresses count by their network of `NETWORK_BITS`, since one host may use all of its addresses.

    Args:
        address: of IPv4 or IPv6; empty for a client of a Unix socket.
    """
    return f"\n{_network(address) if address and ':' in address else address}"


def _network(address: str) -> str:
    try:
        found = _address(address)
    except ValueError:
        return address
    return str(found if isinstance(found, IPv4Address) else ip_network((int(found), NETWORK_BITS), strict=False))


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address; that of IPv4 where an IPv6 address stands for one."""
    found = ip_address(text)
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found
