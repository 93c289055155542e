"""The one fold from the log to the read models, used by the live projection, by the replay and by Spark.

Pure, and free of SQL: Spark's executors import it. A stream is folded alone, in the order of its versions; every event
gives the stream's next state and the changes of rows that follow from it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from rioni.domain.aggregates import AGGREGATES
from rioni.domain.event_types.event_type import EventType, EventTypeCreated, EventTypeDeleted, SchemaAdded
from rioni.domain.events import DomainEvent
from rioni.domain.ports.event_log import LogEntry
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timelines


FOLD_VERSION = 1
"""To be increased with every change of the fold's result for any log; read models that another version wrote are not
used."""


class Change(NamedTuple):
    """A change of one row, or the removal of all rows under a key."""

    table: str
    key: tuple[str | int, ...]
    """The row's primary key. If `row` is None, it may be the first part of a key: then all rows with it are removed."""
    row: Mapping[str, Any] | None
    """All columns of the row, the key's included."""


class Folded(NamedTuple):
    """The history of one stream up to a version."""

    version: int
    state: Any
    """None before the first event and after a deletion."""
    body: str | None
    """The state as JSON."""


EMPTY = Folded(0, None, None)


def fold(before: Folded, entry: LogEntry) -> tuple[Folded, list[Change]]:
    """Fold one entry of a stream.

    Args:
        before: the result of the earlier entries.
        entry: the next entry of the same stream.

    Raises:
        ValueError: the entry's version does not follow.
    """
    if entry.version != before.version + 1:
        raise ValueError(
            f"stream {entry.stream}: version {entry.version} at position {entry.position} "
            f"does not follow version {before.version}"
        )
    event = entry.event
    state = AGGREGATES[event.kind].evolve(before.state, event)
    body = before.body if state is before.state else encode_state(state)
    after = Folded(entry.version, state, body)
    changes = [_state_change(entry, after), _audit_change(entry, before, after)]
    changes.extend(_read_model_changes(entry, after))
    return after, changes


def encode_state(state: Any) -> str | None:
    """The JSON of a state, as it is in the table `states`."""
    return None if state is None else msgspec.json.encode(state).decode()


def decode_state(kind: str, body: str | None) -> Any:
    """The state that `encode_state` wrote."""
    return None if body is None else msgspec.json.decode(body, type=AGGREGATES[kind].state)


def _state_change(entry: LogEntry, after: Folded) -> Change:
    stream = str(entry.stream)
    row = {
        "stream": stream,
        "kind": entry.event.kind,
        "key": entry.event.key,
        "version": after.version,
        "state": after.body,
    }
    return Change("states", (stream,), row)


def _audit_change(entry: LogEntry, before: Folded, after: Folded) -> Change:
    row = {
        "position": entry.position,
        "recorded_at": entry.origin.recorded_at,
        "actor": entry.origin.actor,
        "client": entry.origin.client,
        "flow_id": entry.origin.flow_id,
        "command_id": entry.origin.command_id,
        "topic": entry.event.TOPIC,
        "resource_type": entry.event.kind,
        "resource": entry.event.key,
        "before": before.body,
        "after": after.body,
    }
    return Change("audit_log", (entry.position,), row)


def _read_model_changes(entry: LogEntry, after: Folded) -> Iterator[Change]:
    match entry.event.kind:
        case "event-type":
            yield from _event_type_changes(entry, after)
        case "timeline":
            yield from _timeline_changes(entry.event, after)
        case "subscription":
            yield from _subscription_changes(entry.event, after)
        case "storage":
            yield from _storage_changes(entry.event, after)


def _event_type_changes(entry: LogEntry, after: Folded) -> Iterator[Change]:
    event, event_type = entry.event, after.state
    match event:
        case EventTypeDeleted(name=name):
            yield Change("schemas", (name,), None)
            yield Change("event_types", (name,), None)
            return
        case EventTypeCreated(name=name, event_type=EventType(schema=schema)) | SchemaAdded(name=name, schema=schema):
            row = {
                "event_type": name,
                "version": schema.version,
                "position": entry.position,
                "body": msgspec.json.encode(schema).decode(),
            }
            yield Change("schemas", (name, schema.version), row)
    if isinstance(event_type, EventType):
        row = {
            "name": event_type.name,
            "owning_application": event_type.owning_application,
            "body": after.body,
        }
        yield Change("event_types", (event_type.name,), row)


def _timeline_changes(event: DomainEvent, after: Folded) -> Iterator[Change]:
    if not isinstance(after.state, Timelines):
        yield Change("timelines", (event.key,), None)
        return
    switch = after.state.switch
    # A storage that the events are about to go to holds a timeline as well: it can't be deleted any more.
    for timeline in (*after.state.timelines, *([switch.timeline] if switch and switch.closing else [])):
        row = {
            "event_type": timeline.event_type,
            "order": timeline.order,
            "storage_id": timeline.storage_id,
            "body": msgspec.json.encode(timeline).decode(),
        }
        yield Change("timelines", (timeline.event_type, timeline.order), row)


def _subscription_changes(event: DomainEvent, after: Folded) -> Iterator[Change]:
    subscription = after.state
    if not isinstance(subscription, Subscription):
        yield Change("subscription_event_types", (event.key,), None)
        yield Change("subscriptions", (event.key,), None)
        return
    row = {
        "id": subscription.id,
        "natural_key": subscription.natural_key,
        "owning_application": subscription.owning_application,
        "created_at": subscription.created_at,
        "body": after.body,
    }
    yield Change("subscriptions", (subscription.id,), row)
    for name in subscription.event_types:
        link = {"subscription_id": subscription.id, "event_type": name}
        yield Change("subscription_event_types", (subscription.id, name), link)


def _storage_changes(event: DomainEvent, after: Folded) -> Iterator[Change]:
    if not isinstance(after.state, StorageEntry):
        yield Change("storages", (event.key,), None)
    else:
        row = {"id": after.state.id, "is_default": after.state.default, "body": after.body}
        yield Change("storages", (after.state.id,), row)
