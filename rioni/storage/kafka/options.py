"""Reads the client options of Kafka, mainly credentials, from the file in the setting `kafka_options`."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rioni.domain.errors import Unavailable
from rioni.files.plain import read_toml


Options = Mapping[frozenset[str], Mapping[str, str]]
"""The librdkafka options of each table of the file, by the set of brokers in its header."""

PREFIXES = ("broker.address.", "reconnect.backoff.", "sasl.", "socket.", "ssl.")
NAMES = frozenset({"client.dns.lookup", "client.id", "client.rack", "compression.type", "security.protocol"})
"""Options that the file may set; those that affect delivery, order and reading are reserved to the event store."""

# They start a program or load a library.
_FORBIDDEN = frozenset({"sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers"})


def read_options(path: Path | None) -> Options:
    """Read the file, if one is set; blocks on the disk. No error shows a value, as that may be a password.

    Raises:
        Unavailable: it can't be read, or sets an option that is not allowed.
    """
    if path is None:
        return {}
    try:
        tables: dict[str, Any] = read_toml(path)
    except OSError as ex:
        raise Unavailable(f"kafka_options: {path} can't be read: {ex.strerror}.") from ex
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as ex:
        raise Unavailable(f"kafka_options: {path} is not valid TOML: {ex}.") from ex
    found: dict[frozenset[str], Mapping[str, str]] = {}
    for servers, table in tables.items():
        if not isinstance(table, dict) or not all(":" in each for each in _servers(servers)):
            raise Unavailable(
                f"kafka_options: {servers!r} in {path} must be a table header that names brokers: "
                '["host:port,host:port"].'
            )
        options = dict(_flat("", table))
        for name, value in options.items():
            if name in _FORBIDDEN or not (name in NAMES or name.startswith(PREFIXES)):
                raise Unavailable(
                    f"kafka_options: {path} must not set {name!r}. It may set {', '.join(sorted(NAMES))} and what "
                    f"begins with {', '.join(PREFIXES)}; but not {', '.join(sorted(_FORBIDDEN))}."
                )
            if not isinstance(value, str | int):
                raise Unavailable(f"kafka_options: {name!r} in {path} must be a string, an integer, true or false.")
        found[_servers(servers)] = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
        }
    return found


def options_of(options: Options, bootstrap_servers: str) -> Mapping[str, str]:
    """Return the options of the table that lists all of these brokers; empty if there is none.

    Clients that may create storages choose their brokers, and must not obtain credentials for other brokers that way.
    """
    wanted = _servers(bootstrap_servers)
    return next((each for servers, each in options.items() if wanted and wanted <= servers), {})


def _servers(text: str) -> frozenset[str]:
    return frozenset(item.strip().lower() for item in text.split(",") if item.strip())


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by their dotted names, which TOML parses as nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
