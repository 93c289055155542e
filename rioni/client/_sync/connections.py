"""Connections to a broker for threads; `_async/connections.py` has the same name for asyncio."""

import ssl

import httpx


def connections(
    url: str,  # noqa: ARG001 - as for asyncio
    trusted: ssl.SSLContext | None,
    proxy: str | None,
    connections_max: int,
    idle_max: int,
) -> httpx.BaseTransport:
    """What makes requests to the server at a URL, through a proxy if there is one."""
    limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=idle_max)
    return httpx.HTTPTransport(limits=limits, verify=trusted or False, proxy=proxy)
