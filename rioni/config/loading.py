"""Loads settings from their sources, and validates their combinations."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import structlog

from rioni.config.proxies import networks
from rioni.config.settings import PREFIX, SETTINGS, Config, ConfigError, Setting
from rioni.config.variables import OF_CLIENTS
from rioni.domain.access.authorization import Mode
from rioni.domain.errors import Malformed
from rioni.domain.texts import nearest
from rioni.domain.transparency.checkpoint import WITNESSES_MAX, parse_verifier
from rioni.files.plain import read_toml


# --- Validates combinations of settings ---

TOKEN_SOURCES = ("auth_tokens", "auth_issuers", "auth_tokeninfo_local", "auth_tokeninfo_remote")
"""The settings that name token sources."""

_MANY_NODES = "makes this broker one of several nodes"


def contradictions(config: Config) -> list[str]:
    """The contradictions in the settings as a whole, a sentence each."""
    longest_s = config.stream_timeout_default_s + config.stream_timeout_jitter_s
    rules = (
        (config.retention_min_ms <= config.retention_default_ms, "retention_min_ms is above retention_default_ms"),
        (config.retention_default_ms <= config.retention_max_ms, "retention_default_ms is above retention_max_ms"),
        (config.partitions_default <= config.partitions_max, "partitions_default is above partitions_max"),
        (_is_pattern(config.owning_applications), "owning_applications is not a regular expression"),
        (_are_verifiers(config.log_witnesses), "log_witnesses has more than 16 keys, or one that is no verifier key"),
        (
            _are_networks(config.trusted_proxies),
            "trusted_proxies has an item that is neither an address nor a network such as 10.1.0.0/16",
        ),
        (config.event_bytes_max <= config.body_bytes_max, "event_bytes_max is above body_bytes_max"),
        (
            (config.tls_certificate is None) == (config.tls_key is None),
            "tls_certificate and tls_key need each other: set both, or none",
        ),
        (
            config.auth_mode == Mode.OFF or any(getattr(config, name) is not None for name in TOKEN_SOURCES),
            f"auth_mode {config.auth_mode} needs one of {', '.join(TOKEN_SOURCES)}",
        ),
        (
            config.auth_mode == Mode.OFF or config.default_admin != "",
            f"auth_mode {config.auth_mode} needs default_admin: name who shall have every right, as data_type:value",
        ),
        (
            not config.clustered or config.kafka is not None,
            f"zookeeper {_MANY_NODES}, which need Kafka: set kafka too, or leave zookeeper out",
        ),
        (
            not config.clustered or (config.database or "").startswith("postgresql"),
            f"zookeeper {_MANY_NODES}, which need PostgreSQL: let database name one, or leave zookeeper out",
        ),
        (
            config.stream_timeout_jitter_s <= config.stream_timeout_default_s,
            "stream_timeout_jitter_s is above stream_timeout_default_s",
        ),
        (
            longest_s <= config.stream_timeout_max_s,
            "stream_timeout_default_s with stream_timeout_jitter_s is above stream_timeout_max_s",
        ),
    )
    return [f"settings: {text}" for holds, text in rules if not holds]


def _are_verifiers(text: str) -> bool:
    keys = [each for each in text.split(",") if each]
    try:
        return len([parse_verifier(each) for each in keys]) <= WITNESSES_MAX
    except Malformed:
        return False


def _are_networks(text: str) -> bool:
    try:
        networks(text)
    except ValueError:
        return False
    return True


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


# --- Loads settings from their sources ---
#
# In this order: the command line, the environment (`RIONI_PORT`), a TOML file (`rioni.toml` in the working directory,
# or the one that `--config` or `RIONI_CONFIG` names), the default. A name that is no setting, and a value that can't be
# used, are errors that name the place and a correct form. Former names of settings are read, with a warning.

FILE = "rioni.toml"
FILE_VARIABLE = "RIONI_CONFIG"
COMMAND_LINE = "command line"
PROGRAM = "settings"
DEFAULT = "default"
RENAMED: Mapping[str, str] = {
    "admin_default": "default_admin",
    "database_wait_s": "database_lock_timeout_s",
    "hasher_salt": "pseudonym_salt",
    "kpi_streams_every_s": "kpi_streams_interval_s",
    "own_events_authorization": "system_events_authorization",
    "retention_every_s": "retention_interval_s",
    "shutdown_s": "shutdown_timeout_s",
    "stream_timeout_spread_s": "stream_timeout_jitter_s",
    "streams_memory_bytes_max": "worker_stream_memory_bytes_max",
    "timeline_wait_s": "timeline_switch_timeout_s",
}
"""Former names of settings, read until version 0.2.0."""

_log = structlog.get_logger("rioni.config")


class Loaded(NamedTuple):
    """The settings, and for each one the source of its value."""

    config: Config
    sources: Mapping[str, str]


class _Source(NamedTuple):
    """One place where values are given, weaker than the next."""

    label: str
    spell: Callable[[str], str]
    values: Mapping[str, object]


def load(
    flags: Mapping[str, object] = MappingProxyType({}),
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    program: Mapping[str, object] = MappingProxyType({}),
) -> Loaded:
    """Gather the settings from all sources.

    Args:
        flags: values from the command line by the names of the settings; None for those that are not given.
        file: the TOML file that the command line names.
        environ: the environment; an empty variable counts as not set.
        program: values from a program that runs the broker, by the names of the settings; stronger than all others.

    Raises:
        ConfigError: names every unknown setting and every value that can't be used.
    """
    errors: list[str] = []
    values: dict[str, Any] = {}
    sources = dict.fromkeys(SETTINGS, DEFAULT)
    for source in (_file(file, environ), _environment(environ), _flags(flags), _Source(PROGRAM, str, program)):
        for given, value in source.values.items():
            name = RENAMED.get(given, given)
            if name != given:
                _log.warning("a setting was renamed", former=source.spell(given), name=source.spell(name))
                if name in source.values:
                    continue
            try:
                values[name] = _setting(name, source.spell).parse(value)
                sources[name] = source.label
            except ConfigError as ex:
                errors.append(f"{source.label}: {source.spell(given)} {ex}")
    config = Config(**values)
    if problems := errors or contradictions(config):
        raise ConfigError("\n".join(problems))
    return Loaded(config, sources)


def _file(named: Path | None, environ: Mapping[str, str]) -> _Source:
    path = named or Path(environ.get(FILE_VARIABLE) or FILE)
    try:
        values = read_toml(path)
    except FileNotFoundError as ex:
        if named or environ.get(FILE_VARIABLE):
            raise ConfigError(f"There is no configuration file {path}.") from ex
        values = {}
    except OSError as ex:
        raise ConfigError(f"The configuration file {path} can't be read: {ex.strerror}.") from ex
    except ValueError as ex:  # not TOML, or not UTF-8
        raise ConfigError(f"{path} is not a TOML file: {ex}.") from ex
    return _Source(str(path), str, values)


def _environment(environ: Mapping[str, str]) -> _Source:
    values = {
        variable.removeprefix(PREFIX).lower(): value
        for variable, value in environ.items()
        if variable.startswith(PREFIX) and variable not in OF_CLIENTS and variable != FILE_VARIABLE and value
    }
    return _Source("environment", lambda name: PREFIX + name.upper(), values)


def _flags(flags: Mapping[str, object]) -> _Source:
    given = {name: value for name, value in flags.items() if value is not None}
    return _Source(COMMAND_LINE, lambda name: "--" + name.replace("_", "-"), given)


def _setting(name: str, spell: Callable[[str], str]) -> Setting:
    if (setting := SETTINGS.get(name)) is not None:
        return setting
    found = nearest(name, SETTINGS)
    advice = "`rioni config show` lists all settings." if found is None else f"did you mean {spell(found)}?"
    raise ConfigError(f"is not a setting; {advice}")
