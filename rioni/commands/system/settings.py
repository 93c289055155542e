"""Commands that change the broker's settings (reference settings-and-storages#administrators)."""

from dataclasses import dataclass

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.errors import InvalidFields, Malformed
from rioni.domain.limits import ATTRIBUTES_MAX, size_violations
from rioni.domain.system.settings import (
    BLACKLIST_TYPES,
    Admins,
    AdminsChanged,
    BlacklistEntryAdded,
    BlacklistEntryRemoved,
    FeatureSwitched,
    LossAccepted,
    feature_named,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAdmins:
    """Replace the list of the broker's administrators."""

    admins: Admins


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBlacklistEntry:
    """Block an application or an event type."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveBlacklistEntry:
    """Unblock an application or an event type."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFeature:
    """Switch a feature on or off."""

    feature: str
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLoss:
    """Record that an operator accepted inconsistent stores."""

    findings: tuple[str, ...]
    reason: str


def accept_loss(command: AcceptLoss, unit_of_work: UnitOfWork) -> None:
    """Record an operator's decision."""
    unit_of_work.record(LossAccepted(findings=command.findings, reason=command.reason))


def set_admins(command: SetAdmins, unit_of_work: UnitOfWork) -> Admins:
    """Replace the administrators; the configured default administrator stays one, and is never stored.

    Raises:
        InvalidFields: a list is empty, or too long.
    """
    violations: list[tuple[str, str]] = []
    for name in ("admins", "readers", "writers"):
        attributes = getattr(command.admins, name)
        violations += size_violations(name, attributes, ATTRIBUTES_MAX)
        if not attributes:
            violations.append((name, "must contain at least one attribute"))
    if violations:
        raise InvalidFields(violations)
    default = unit_of_work.grants.default_admin
    lists = {
        name: tuple(attribute for attribute in getattr(command.admins, name) if attribute != default)
        for name in ("admins", "readers", "writers")
    }
    admins = Admins(**lists)
    if admins != unit_of_work.settings().admins:
        unit_of_work.record(AdminsChanged(admins=admins))
    return admins


def add_blacklist_entry(command: AddBlacklistEntry, unit_of_work: UnitOfWork) -> None:
    """Block an application or an event type; blocking it again changes nothing."""
    _check_type(command.type)
    if (command.type, command.name) not in unit_of_work.settings().blacklist:
        unit_of_work.record(BlacklistEntryAdded(type=command.type, name=command.name))


def remove_blacklist_entry(command: RemoveBlacklistEntry, unit_of_work: UnitOfWork) -> None:
    """Unblock an application or an event type; repeating it changes nothing."""
    _check_type(command.type)
    if (command.type, command.name) in unit_of_work.settings().blacklist:
        unit_of_work.record(BlacklistEntryRemoved(type=command.type, name=command.name))


def switch_feature(command: SwitchFeature, unit_of_work: UnitOfWork) -> None:
    """Switch a feature; switching it to its current state changes nothing.

    Raises:
        Malformed: there is no such feature.
    """
    feature = feature_named(command.feature)
    if (feature in unit_of_work.settings().features) != command.enabled:
        unit_of_work.record(FeatureSwitched(feature=feature, enabled=command.enabled))


def _check_type(blacklist_type: str) -> None:
    if blacklist_type not in BLACKLIST_TYPES:
        raise Malformed(f"Illegal enum value: '{blacklist_type}'. Possible values: [{', '.join(BLACKLIST_TYPES)}]")
