"""Whether the servers that the settings name accept connections from the broker's host."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from rioni.cli.doctor.model import NotLookedAt, source
from rioni.cli.doctor.site import Site
from rioni.config.settings import Config
from rioni.domain.access.addresses import host_and_port


SERVERS_MAX = 16
CONNECT_S = 2.0
PORTS = {"postgresql": 5432, "http": 80, "https": 443}
"""By scheme, where a URL names none."""


class Server(msgspec.Struct, frozen=True):
    """A server that a setting names."""

    setting: str
    address: str
    error: str = ""
    """Why it can't be connected to."""


@source
def servers(site: Site, config: Config) -> list[Server]:
    """Connect to each of them, and disconnect at once."""
    found = []
    for setting, host, port in list(addresses(config))[:SERVERS_MAX]:
        if not site.deadline.left_s:
            break
        problem = ""
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError as ex:
            problem = ex.strerror or str(ex)
        found.append(Server(setting, host_and_port(host, port), problem))
    if not found:
        raise NotLookedAt("the settings name no other servers", wanted=False)
    return found


def addresses(config: Config) -> Iterator[tuple[str, str, int]]:
    """Setting, host and port of each server; those whose address can't be read are left out."""
    for name in ("kafka", "zookeeper"):
        for each in (getattr(config, name) or "").partition("/")[0].split(","):
            host, _, port = each.strip().rpartition(":")
            if host and port.isdecimal():
                yield name, host.strip("[]"), int(port)
    for name in ("database", "auth_tokeninfo_local", "auth_tokeninfo_remote"):
        try:
            parts = urlsplit(getattr(config, name) or "")
            port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
        except ValueError:
            continue
        # PostgreSQL's socket file has no host.
        if parts.hostname and port:
            yield name, parts.hostname, port
