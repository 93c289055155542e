"""Decides which host names and addresses are loopback."""

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address; other names are not resolved, and count as not loopback.

    Args:
        host: a name or an address, without port and brackets.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
