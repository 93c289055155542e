"""Plans how a broker gets the state that definitions ask for, and carries the plan out. Speaks to the broker."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from rioni.cli.definitions import broker_rules
from rioni.cli.definitions.definition import EVENT_TYPE, SUBSCRIPTION, Definition, DefinitionError, SourceLocation
from rioni.cli.definitions.steps import Action, Resource, Step, ordered, step
from rioni.cli.publishing.checking import filters_that_lose
from rioni.client import Client, Conflict, NotFound, PreconditionFailed, Unprocessable
from rioni.domain.errors import Invalid, RioniError
from rioni.domain.texts import proposal
from rioni.wire.event_types import EventType, Schema
from rioni.wire.subscriptions import Subscription


WARNING = "warning: "
"""The beginning of notes about a filter."""
REQUESTS_MAX = 8
"""The most requests at the same time, while the plan is made."""


class ChangedMeanwhile(RioniError):
    """A resource is not in the state that the plan was made from."""


class Prune(NamedTuple):
    """The resources to delete because no definition names them.

    Args:
        owning_application: whose event types or subscriptions.
        event_types: whether event types are.
        subscriptions: whether subscriptions are.
    """

    owning_application: str
    event_types: bool
    subscriptions: bool


@dataclass(frozen=True)
class ChangePlan:
    """The steps to take, in this order, and all problems that prevent them."""

    steps: Sequence[Step]
    problems: Sequence[DefinitionError]

    @property
    def changes(self) -> list[Step]:
        """The steps that do something."""
        return [each for each in self.steps if each.action is not Action.KEEP]


def plan(client: Client, definitions: Sequence[Definition], prune: Prune | None = None) -> ChangePlan:
    """Plan the steps that make the broker match the definitions; changes nothing.

    Args:
        client: of the broker; several threads use it.
        definitions: each of another resource.
        prune: what else is deleted.

    Raises:
        ClientError: the broker could not be asked.
    """
    defined = {each.members["name"] for each in definitions if each.kind == EVENT_TYPE}
    with ThreadPoolExecutor(REQUESTS_MAX) as threads:
        found = list(threads.map(lambda each: _planned(client, each, defined), definitions))
    steps = [each for each in found if isinstance(each, Step)]
    problems = [each for each in found if isinstance(each, DefinitionError)]
    for each in _pruned(client, {each.key for each in definitions}, prune) if prune else ():
        if isinstance(each, Step):
            steps.append(each)
        else:
            problems.append(each)
    return ChangePlan(ordered(steps), sorted(problems))


def current_of(client: Client, definition: Definition) -> Resource | None:
    """Return the resource of the broker that a definition describes; None if there is no such resource."""
    if definition.kind == EVENT_TYPE:
        return _event_type_named(client, definition.members["name"])
    application, event_types = definition.members["owning_application"], sorted(set(definition.members["event_types"]))
    for each in client.subscriptions.list(owning_application=application, event_types=event_types):
        wanted = definition.members.get("consumer_group", "default")
        if each.consumer_group == wanted and sorted(each.event_types) == event_types:
            return each
    return None


def carry_out(client: Client, steps: Iterable[Step]) -> Iterator[Step]:
    """Carry out steps, and yield each when it is done, with the id of a new subscription.

    Raises:
        ChangedMeanwhile: a resource was changed since the plan was made.
        ClientError: the broker could not be asked, or refused a step.
    """
    for each in steps:
        do: Callable[[Client, Step], Step] = _event_type if each.kind == EVENT_TYPE else _subscription
        try:
            done = do(client, each)
        except (PreconditionFailed, Conflict) as ex:
            reason = "was changed since the plan was made" if isinstance(ex, PreconditionFailed) else ex.detail
            raise ChangedMeanwhile(f"{each.kind} {each.name}: {reason}") from ex
        yield done


def _event_type_named(client: Client, name: str) -> EventType | None:
    try:
        return client.event_types.get(name)
    except NotFound:
        return None


def planned(client: Client, definition: Definition, current: Resource | None, defined: Collection[str] = ()) -> Step:
    """The step for a definition, if the broker would not refuse it; changes nothing.

    Args:
        client: of the broker.
        definition: of the resource.
        current: the resource as the broker has it.
        defined: names of event types that will exist.

    Raises:
        Invalid: why the step can't be done.
        ClientError: the broker could not be asked.
    """
    found = step(definition, current)
    broker_rules.check_step(found)
    return _checked(client, found, defined)


def _planned(client: Client, definition: Definition, defined: set[str]) -> Step | DefinitionError:
    try:
        return planned(client, definition, current_of(client, definition), defined)
    except Invalid as ex:
        return DefinitionError(definition.place, definition.name, "; ".join(str(ex).splitlines()))


def _checked(client: Client, found: Step, defined: Collection[str]) -> Step:
    """The step, if the broker would not refuse it; raises Invalid."""
    after = found.after or {}
    if found.changes_schema:
        answer = client.schemas.check(after["name"], Schema.of(after["schema"]))
        if not answer.compatible:
            raise Invalid(answer.error or "the schema is not compatible")
        if version := broker_rules.next_version(found):
            found = replace(found, notes=(*found.notes, f"its schema will have the version {version}"))
        assert isinstance(found.current, EventType)
        lost = filters_that_lose(client, found.current, EventType.of(after))
        found = replace(found, notes=(*found.notes, *(f"{WARNING}{each}" for each in lost)))
    if found.kind == SUBSCRIPTION and found.action is Action.CREATE:
        missing = [name for name in after["event_types"] if not (name in defined or _event_type_named(client, name))]
        if missing:
            near = proposal(missing[0], [*defined, *(each.name for each in client.event_types.list())], "")
            raise Invalid(f"there is no event type {', '.join(missing)}, neither on the broker nor in the files{near}")
    if found.kind == SUBSCRIPTION and after.get("filter") and after["filter"] != (found.before or {}).get("filter"):
        found = replace(found, notes=(*found.notes, *_filter_warnings(client, after["filter"], after["event_types"])))
    return found


def _filter_warnings(client: Client, expression: str, event_types: Sequence[str]) -> list[str]:
    """Return the broker's warnings about a filter and the schemas that it has; those of the files come later."""
    known = [name for name in event_types if _event_type_named(client, name)]
    try:
        return [f"{WARNING}{each}" for each in client.subscriptions.check_filter(expression, known)]
    except Unprocessable as ex:
        raise Invalid(ex.detail) from ex
    except NotFound:  # a server that does not try filters
        return []


def _pruned(client: Client, keys: set[tuple[str, ...]], prune: Prune) -> Iterator[Step | DefinitionError]:
    ids = set()
    application = prune.owning_application
    if prune.subscriptions:
        for each in client.subscriptions.list(owning_application=application):
            if Definition(SUBSCRIPTION, each.members(), SourceLocation("", 0)).key not in keys:
                ids.add(each.id)
                yield Step(SUBSCRIPTION, each, None, id=each.id)
    for event_type in client.event_types.list(owning_application=application) if prune.event_types else ():
        if (EVENT_TYPE, event_type.name) in keys:
            continue
        left = [each.id for each in client.subscriptions.list(event_types=[event_type.name]) if each.id not in ids]
        if left:
            text = f"can't be deleted, as it has subscriptions: {', '.join(left)}"
            yield DefinitionError(SourceLocation("--prune", 0), event_type.name, text)
        else:
            yield Step(EVENT_TYPE, event_type, None)


def _event_type(client: Client, each: Step) -> Step:
    if each.after is None:
        client.event_types.delete(each.name)
        return each
    if not isinstance(each.current, EventType):
        client.event_types.create(EventType.of(each.after))
        return each
    if each.first_update != each.before:
        client.event_types.update(EventType.of(each.first_update), if_match=each.current.etag)
    if each.partitions is not None:
        client.partitions.set_count(each.name, each.partitions)
        now = client.event_types.get(each.name)
        wanted = EventType.of(each.after)
        if now.default_statistic != wanted.default_statistic:
            client.event_types.update(wanted, if_match=now.etag)
    return each


def _subscription(client: Client, each: Step) -> Step:
    if not isinstance(each.current, Subscription):
        assert each.after is not None
        return replace(each, id=client.subscriptions.create(Subscription.of(each.after)).id)
    if client.subscriptions.get(each.current.id).members() != each.before:
        raise ChangedMeanwhile(f"{each.kind} {each.name}: was changed since the plan was made")
    if each.after is None:
        client.subscriptions.delete(each.current.id)
    else:
        client.subscriptions.update(Subscription.of({**each.after, "id": each.current.id}))
    return each
