"""Proxies that the environment names: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, also in small letters.

A broker of this machine is always asked directly: no proxy elsewhere can reach it.
"""

import importlib.util
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass


SCHEMES = ("http", "https", "socks5", "socks5h")


def proxy_for(url: SplitResult) -> str | None:
    """The URL of the proxy for a broker; None if it is asked directly.

    Args:
        url: of the broker.

    Raises:
        ValueError: the environment names a proxy that can't be used.
    """
    proxies = getproxies()
    variable = f"{url.scheme}_PROXY".upper() if proxies.get(url.scheme) else "ALL_PROXY"
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or _is_exempted(url, proxies.get("no", "")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    parts = urlsplit(proxy)
    advice = f"name another one, or exempt the broker: NO_PROXY={url.hostname}"
    named = f"{variable} is {shown(proxy)}"
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ValueError(f"{named}, which is not the URL of a proxy such as http://proxy:3128; {advice}")
    if parts.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise ValueError(f"{named}, and proxies of SOCKS need the package socksio: pip install socksio; or {advice}")
    return proxy


def shown(proxy: str) -> str:
    """The URL of a proxy without user and password."""
    scheme, _, rest = proxy.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _is_exempted(url: SplitResult, exempted: str) -> bool:
    host = (url.hostname or "").rstrip(".")
    address = _address(host)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if address is not None and (address.is_loopback or address.is_unspecified):
        return True
    if proxy_bypass(url.netloc.rpartition("@")[2]) or proxy_bypass(host):
        return True
    return address is not None and any(_contains(entry.strip(), address) for entry in exempted.split(","))


def _contains(entry: str, address: IPv4Address | IPv6Address) -> bool:
    """Whether an entry of NO_PROXY is a network, or another form of an address."""
    with suppress(ValueError):
        return address in ip_network(entry.strip("[]"), strict=False)
    return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        found = ip_address(host)
        return getattr(found, "ipv4_mapped", None) or found
    return None
