"""The settings for proxies in front of the broker: the path below which they serve it, and the trusted ones."""

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network


OWN_PATHS = frozenset(
    (
        "audit",
        "avro-schemas",
        "console",
        "docs",
        "event-type-facets",
        "event-types",
        "filter-evaluations",
        "health",
        "jobs",
        "livez",
        "log",
        "metrics",
        "nodes",
        "openapi.json",
        "readyz",
        "rebuilds",
        "registry",
        "rights",
        "settings",
        "storages",
        "stream-tickets",
        "subscriptions",
        "version",
    )
)
"""The first segments of the broker's own paths: below such a base path it would be unclear if the proxy has removed
it."""
BASE_PATH = (
    rf"^(?!/({'|'.join(map(re.escape, sorted(OWN_PATHS)))})(/|\Z))"
    r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._~-]+)*\Z"
)
"""The pattern of a path below which a proxy serves the broker; empty if the proxy serves it at `/`."""
BASE_PATH_CHARACTERS_MAX = 200
BASE_PATH_EXPECTED = (
    f"a path of at most {BASE_PATH_CHARACTERS_MAX} characters like /broker or /tools/broker, of letters, digits, "
    "'-', '.', '_' and '~', without a slash at its end, that begins as none of the broker's own, such as /console"
)
_is_base_path = re.compile(BASE_PATH).match

Network = IPv4Network | IPv6Network


def is_base_path(text: str) -> bool:
    """Whether the broker can be served below a path; the empty one is `/`."""
    return len(text) <= BASE_PATH_CHARACTERS_MAX and _is_base_path(text) is not None


def networks(text: str) -> tuple[Network, ...]:
    """The addresses and networks of a list, separated by commas.

    Raises:
        ValueError: one of them is neither.
    """
    return tuple(ip_network(each) for each in text.split(",") if each)


def is_within(address: str, wanted: tuple[Network, ...]) -> bool:
    """Whether an address is in one of the networks, also if a socket for both versions of IP shows it as IPv6."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return any(found in network or (mapped is not None and mapped in network) for network in wanted)
