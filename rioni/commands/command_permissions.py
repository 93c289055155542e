"""Permission checks of commands: one function per permission, named once per command in the bus.

Source: reference authorization#rights.
"""

from typing import Any

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.access.authorization import check
from rioni.domain.errors import AccessDenied, AdminOnly
from rioni.domain.system.system_events import NAMES as OWN_EVENT_TYPES


def anyone(_command: Any, _unit_of_work: UnitOfWork) -> None:
    """Every authenticated client."""


def event_type_creator(command: Any, unit_of_work: UnitOfWork) -> None:
    """Every authenticated client but auditors; system event types by the broker's administrators only."""
    name = command.spec.name
    if unit_of_work.is_auditor() and not unit_of_work.is_admin("WRITE"):
        raise AccessDenied("ADMIN", f"event-type:{name}", "auditors read, and create no event types")
    if name in OWN_EVENT_TYPES and not unit_of_work.is_admin("WRITE"):
        raise AccessDenied("ADMIN", f"event-type:{name}", "the broker itself publishes to it")


def event_type_admin(command: Any, unit_of_work: UnitOfWork) -> None:
    """Administrators of the event type that the command names, and of the broker."""
    event_type = unit_of_work.event_type(command.name)
    check(unit_of_work.grants.event_type(event_type, "ADMIN"), unit_of_work.subject, "ADMIN", event_type.resource)


def subscription_admin(command: Any, unit_of_work: UnitOfWork) -> None:
    """Administrators of the subscription that the command names, and of the broker."""
    subscription = unit_of_work.subscription(command.subscription_id)
    check(unit_of_work.grants.subscription(subscription, "ADMIN"), unit_of_work.subject, "ADMIN", subscription.resource)


def broker_writer(_command: Any, unit_of_work: UnitOfWork) -> None:
    """The broker's administrators who may write."""
    _broker_admin(unit_of_work, "WRITE")


def event_type_operator(command: Any, unit_of_work: UnitOfWork) -> None:
    """The broker's administrators who may write: those of the event type may not choose the storage of its events."""
    if not unit_of_work.is_admin("WRITE"):
        raise AccessDenied("ADMIN", f"event-type:{command.event_type}")


def broker_admin(_command: Any, unit_of_work: UnitOfWork) -> None:
    """The broker's administrators who may change the list of administrators."""
    _broker_admin(unit_of_work, "ADMIN")


def _broker_admin(unit_of_work: UnitOfWork, operation: str) -> None:
    if not unit_of_work.is_admin(operation):
        raise AdminOnly("Admin privileges are required to perform this operation")
