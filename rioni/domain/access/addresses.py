"""Addresses of hosts: which are loopback, which are one client, and how they are written with a port."""

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
    """The key of a client known by its address only; it never equals the name of a subject.

    IPv6 addresses count by their network of `NETWORK_BITS`, since one host may use all of its addresses.

    Args:
        address: an address of IPv4 or IPv6; empty for a client of a Unix socket.
    """
    return f"\n{_network(address) if address and ':' in address else address}"


def _network(address: str) -> str:
    try:
        found = _address(address)
    except ValueError:
        return address
    return str(found if isinstance(found, IPv4Address) else ip_network((int(found), NETWORK_BITS), strict=False))


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address; an IPv6 address that embeds one of IPv4 becomes that one."""
    found = ip_address(text)
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


# --- Hosts and ports in one text, also if the host is an IPv6 address ---


def host_and_port(host: str, port: int) -> str:
    """A host and a port as URLs have them: `[::1]:8080`, `[fe80::1%25eth0]:8080`.

    Args:
        host: a name or an address, with or without brackets.
        port: the port.
    """
    if ":" not in host or host.startswith("["):
        return f"{host}:{port}"
    return f"[{host.replace('%25', '%').replace('%', '%25')}]:{port}"
