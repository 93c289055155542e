"""Permission checks of commands: one function per permission, named once per command in the bus.

Source: reference authorization#rights.
"""

from typing import Any

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.access.authorization import check, permits
from rioni.domain.errors import AccessDenied, AdminOnly
from rioni.domain.system.system_event_types import NAMES as OWN_EVENT_TYPES


def anyone(_command: Any, _repository: UnitOfWork) -> None:
    """Every authenticated client."""


def event_type_creator(command: Any, repository: UnitOfWork) -> None:
    """Every authenticated client; system event types may be created by the broker's administrators only."""
    name = command.spec.name
    if name in OWN_EVENT_TYPES and not repository.is_admin("WRITE"):
        raise AccessDenied("ADMIN", f"event-type:{name}", "the broker itself publishes to it")


def event_type_admin(command: Any, repository: UnitOfWork) -> None:
    """Administrators of the event type that the command names, and of the broker."""
    event_type = repository.event_type(command.name)
    section = event_type.authorization
    check(
        section.admins if section else None,
        repository.subject,
        "ADMIN",
        event_type.resource,
        admins=repository.admins("WRITE"),
    )


def subscription_admin(command: Any, repository: UnitOfWork) -> None:
    """Administrators of the subscription that the command names, and of the broker."""
    subscription = repository.subscription(command.subscription_id)
    section = subscription.authorization
    check(
        section.admins if section else None,
        repository.subject,
        "ADMIN",
        subscription.resource,
        admins=repository.admins("ADMIN"),
    )


def broker_writer(_command: Any, repository: UnitOfWork) -> None:
    """The broker's administrators who may write."""
    _broker_admin(repository, "WRITE")


def event_type_operator(command: Any, repository: UnitOfWork) -> None:
    """The broker's administrators who may write: the event type's own may not decide where its events are stored."""
    if not repository.is_admin("WRITE"):
        raise AccessDenied("ADMIN", f"event-type:{command.event_type}")


def broker_admin(_command: Any, repository: UnitOfWork) -> None:
    """The broker's administrators who may change the list of administrators."""
    _broker_admin(repository, "ADMIN")


def _broker_admin(repository: UnitOfWork, operation: str) -> None:
    if not permits(repository.admins(operation), repository.subject):
        raise AdminOnly("Admin privileges are required to perform this operation")
