"""Validates combinations of settings."""

import re

from rioni.config.proxies import networks
from rioni.config.settings import Config
from rioni.domain.access.authentication import Mode
from rioni.domain.errors import Malformed
from rioni.domain.transparency.cosignatures import WITNESSES_MAX
from rioni.domain.transparency.signed_note import parse_verifier


TOKEN_SOURCES = ("auth_tokens", "auth_issuers", "auth_tokeninfo_local", "auth_tokeninfo_remote")
"""The settings that name token sources."""

_MANY_NODES = "makes this broker one of several nodes"


def contradictions(config: Config) -> list[str]:
    """What is wrong with the settings as a whole, a sentence each."""
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
