"""Reads the client options of Kafka, above all credentials, from the file that `kafka_options` names."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rioni.domain.errors import Unavailable


Options = Mapping[frozenset[str], Mapping[str, str]]
"""For the brokers that a table of the file names, the options of librdkafka."""

PREFIXES = ("broker.address.", "reconnect.backoff.", "sasl.", "socket.", "ssl.")
NAMES = frozenset({"client.dns.lookup", "client.id", "client.rack", "compression.type", "security.protocol"})
"""What the file may set; what has to do with delivery, order and reading the event store itself must decide."""

# They start a program or load a library.
_FORBIDDEN = frozenset({"sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers"})


def read_options(path: Path | None) -> Options:
    """Read the file, where there is one; blocks on the disk. No error shows a value, as that may be a password.

    Raises:
        Unavailable: it can't be read, or sets what must not be set.
    """
    if path is None:
        return {}
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
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
    """The options of the table that names all of these brokers; none where there is no such table.

    Whoever may create storages says where the brokers are, and must not get the credentials of others that way.
    """
    wanted = _servers(bootstrap_servers)
    return next((each for servers, each in options.items() if wanted and wanted <= servers), {})


def _servers(text: str) -> frozenset[str]:
    return frozenset(item.strip().lower() for item in text.split(",") if item.strip())


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of nested tables by their dotted names, which TOML takes for tables in tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
