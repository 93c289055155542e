"""Converts settings to values of the domain."""

import functools
from pathlib import Path

from rioni.commands.system.system_events import LogConsumer
from rioni.config.settings import DEFAULT_ADMIN, Config
from rioni.domain.access.authorization import EVERYBODY, WELL_KNOWN_ADMIN, Attribute, Mode, TokenPolicy, normalize_realm
from rioni.domain.audit_events import audit_events
from rioni.domain.kpis import (
    EVENT_TYPE_LOG,
    SUBSCRIPTION_LOG,
    event_type_reports,
    subscription_reports,
)
from rioni.domain.limits import Limits
from rioni.domain.system import system_events as own
from rioni.domain.system.storages import DEFAULT_STORAGE, EMBEDDED, KAFKA, StorageEntry


def first_storage(config: Config) -> StorageEntry:
    """Return the initial default storage."""
    return StorageEntry(id=DEFAULT_STORAGE, storage_type=KAFKA if config.clustered else EMBEDDED, default=True)


def limits_of(config: Config) -> Limits:
    """Return the limits of the domain's rules."""
    return Limits(**{name: getattr(config, name) for name in Limits.__struct_fields__})


def token_policy(config: Config) -> TokenPolicy:
    """Return the requirements for tokens."""
    return TokenPolicy(
        mode=Mode(config.auth_mode),
        realms=frozenset(map(normalize_realm, _items(config.auth_realms))),
        service_realms=frozenset(map(normalize_realm, _items(config.auth_service_realms))),
    )


def default_admin(config: Config) -> Attribute:
    """Return the permanent administrator."""
    return parse_attributes(config.default_admin or WELL_KNOWN_ADMIN)[0]


def auditors(config: Config) -> tuple[Attribute, ...]:
    """Return who may read the history and create nothing: those whose scopes can't express that, in these modes."""
    if config.auth_mode not in (Mode.BASIC, Mode.REALM):
        return ()
    return tuple(each for each in parse_attributes(config.audit_readers) if each != EVERYBODY)


NO_SHARED_KEY = (
    "Let log_signing_key name a copy of the same key on all nodes: without it one of them signs, and stream tickets "
    "and sessions of the console are good at the node alone that gave them."
)


def key_file(config: Config) -> Path:
    """Return the path of the signing key of a broker."""
    return config.log_signing_key or config.data / "log-signing.key"


def parse_attributes(text: str) -> tuple[Attribute, ...]:
    """Parse the attributes of a setting, `data_type:value` each, separated by commas."""
    pairs = (item.partition(":") for item in _items(text))
    return tuple(Attribute(data_type, value) for data_type, _, value in pairs)


def system_event_types(config: Config, limits: Limits) -> list[own.SystemEventType]:
    """Return the event types that the broker itself publishes to."""
    admins = default_admin(config)
    named = config.system_events_authorization
    readers = admins if named == DEFAULT_ADMIN else parse_attributes(named)[0]
    auditors, measurers = (
        own.Ownership(application=application, readers=readers, admins=admins)
        for application in (config.audit_owning_application, config.kpi_owning_application)
    )
    return [
        own.audit_log(auditors, limits),
        *own.kpis(measurers, limits),
        own.dead_letter_queue(measurers, limits),
    ]


def log_consumers(config: Config) -> list[LogConsumer]:
    """Return the consumers of the log."""
    return [
        LogConsumer(own.AUDIT_LOG, own.AUDIT_FEATURE, functools.partial(audit_events, salt=config.pseudonym_salt)),
        LogConsumer(EVENT_TYPE_LOG, own.KPI_FEATURE, event_type_reports),
        LogConsumer(SUBSCRIPTION_LOG, own.KPI_FEATURE, subscription_reports),
    ]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
