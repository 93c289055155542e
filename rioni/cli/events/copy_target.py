"""Makes the event type that events are copied to, like their source."""

import copy

from rioni.cli.events.places import Locator
from rioni.cli.events.ranges import Selection, starts
from rioni.client import Client, EventType, NotFound, Schema, Statistic
from rioni.domain.errors import Invalid
from rioni.domain.nearest import proposal


def target_of(
    client: Client, name: str, source_client: Client, source: EventType, selection: Selection, *, create: bool
) -> tuple[EventType, bool]:
    """The event type to copy to, and whether it was made now.

    Args:
        client: of its broker.
        name: of the event type.
        source_client: of the broker of the source.
        source: what is copied.
        selection: of its events.
        create: whether to make it where there is none.

    Raises:
        Invalid: there is none, it is the source itself, or the selection does not fit, in which case nothing is made.
    """
    locator = Locator(source_client, source.name)
    bounds = locator.bounds(selection.partitions)
    starts(locator, bounds, selection, from_end=False)
    try:
        found = client.event_types.get(name)
    except NotFound as ex:
        if not create:
            near = proposal(name, (each.name for each in client.event_types.list()))
            raise Invalid(
                f"There is no event type {name} to copy to{near} --create makes one like {source.name}."
            ) from ex
        return _created(client, name, source, len(source_client.partitions.list(source.name))), True
    if (found.name, found.created_at) == (source.name, source.created_at):
        raise Invalid(f"{name} can't be copied to itself: source and target are the same event type.")
    return found, False


def _created(client: Client, name: str, source: EventType, partitions: int) -> EventType:
    wanted = copy.copy(source)
    wanted.name = name
    wanted.schema = Schema(schema=source.schema.schema, type=source.schema.type)
    load = source.default_statistic
    # Partitions may have been added since the source was made.
    wanted.default_statistic = Statistic(
        messages_per_minute=load.messages_per_minute if load else 1,
        message_size=load.message_size if load else 1,
        read_parallelism=partitions,
        write_parallelism=min(load.write_parallelism, partitions) if load else partitions,
    )
    client.event_types.create(wanted)
    if len(client.partitions.list(name)) < partitions:
        client.partitions.set_count(name, partitions)
    return client.event_types.get(name)
