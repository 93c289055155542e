"""Checks definitions that were not sent yet by the rules of the API that do not depend on a broker's settings."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from rioni.cli.definitions.definition import EVENT_TYPE, Definition, DefinitionError
from rioni.cli.definitions.steps import Step, step
from rioni.domain.avro.event_schema import schemas_in_json
from rioni.domain.errors import Invalid
from rioni.domain.event_types import rules
from rioni.domain.event_types.event_type import EventType, EventTypeSpec, check_data_lake
from rioni.domain.limits import Limits
from rioni.domain.schema_changes import check_submitted_schema, evolved_schema
from rioni.domain.subscriptions import subscription
from rioni.domain.subscriptions.subscription import SubscriptionSpec
from rioni.wire.event_types import EventType as ClientEventType


# --- The rules of the API ---


NOW = "1970-01-01T00:00:00.000Z"
"""The time does not matter to the rules."""
_VERSION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")


def check_step(step: Step) -> None:
    """Check the resource that a step would create or change.

    What depends on settings or on the rights of the client is left to the broker, and so is the compatibility of
    schemas.

    Raises:
        Invalid: the rule that is broken, in the words of the broker.
    """
    if step.after is None:
        return
    if step.kind == EVENT_TYPE:
        _check_event_type(step)
    else:
        _check_subscription(step)


def next_version(step: Step) -> str | None:
    """The version that a changed schema of an event type will be; None if that is not known."""
    assert isinstance(step.current, ClientEventType)
    current = _state(step.current)
    if not _VERSION.fullmatch(current.schema.version):
        return None
    try:
        # Another server may have accepted definitions that these rules refuse.
        check_submitted_schema(current)
        version = outcome(step).schema.version
    except Invalid:
        return None
    return None if version == current.schema.version else version


def outcome(step: Step) -> EventType:
    """The event type after a step that was checked, with the version of its schema.

    Raises:
        Invalid: the schema may not follow that of before.
    """
    if step.current is None:
        return rules.new(msgspec.convert(step.after, EventTypeSpec), now=NOW, limits=Limits())
    assert isinstance(step.current, ClientEventType)
    spec = msgspec.convert(step.first_update, EventTypeSpec)
    current = _state(step.current)
    assert spec.schema is not None
    wanted = rules.changed(current, spec, now=NOW, limits=Limits(), by_admin=True)
    added = evolved_schema(current, spec.schema, wanted, now=NOW)
    return wanted if added is None else msgspec.structs.replace(wanted, schema=added)


def _check_event_type(step: Step) -> None:
    if step.current is None:
        spec = msgspec.convert(step.after, EventTypeSpec)
        rules.check_fields(spec)
        wanted = rules.new(spec, now=NOW, limits=Limits())
    else:
        assert isinstance(step.current, ClientEventType)
        spec = msgspec.convert(step.first_update, EventTypeSpec)
        rules.check_fields(spec)
        wanted = rules.changed(_state(step.current), spec, now=NOW, limits=Limits(), by_admin=True)
        assert spec.schema is not None
        schema = msgspec.structs.replace(wanted.schema, type=spec.schema.type, schema=spec.schema.schema)
        wanted = msgspec.structs.replace(wanted, schema=schema)
    check_data_lake(spec.annotations or {}, mandatory=False)
    check_submitted_schema(wanted)
    rules.check_strategies(wanted)
    rules.check_authorization(wanted)


def _check_subscription(step: Step) -> None:
    spec = msgspec.convert(step.after, SubscriptionSpec)
    subscription.check_fields(spec)
    subscription.new(spec, subscription_id="", now=NOW)


def _state(current: ClientEventType) -> EventType:
    """An event type that the broker answered with, as the rules take it."""
    members = {name: value for name, value in msgspec.to_builtins(current).items() if value is not None}
    absent = {"default_statistic": None, "authorization": None, "created_at": NOW, "updated_at": NOW}
    members["schema"] = {"version": "1.0.0", "created_at": NOW} | {
        name: value for name, value in members["schema"].items() if value is not None
    }
    return msgspec.convert(absent | members, EventType)


# --- Checks definitions without a broker: against each other, and against those of before ---


class Findings(NamedTuple):
    """The problems of definitions, and warnings about them."""

    problems: Sequence[DefinitionError]
    warnings: Sequence[DefinitionError]


def check_offline(definitions: Sequence[Definition], before: Sequence[Definition] = ()) -> Findings:
    """Check definitions as a broker would that has the state of `before`; what depends on its settings is left out.

    Args:
        definitions: each of another resource.
        before: those that were applied last; without them everything is new.

    Raises:
        Invalid: one of those of before is none that a broker has taken.
    """
    problems: list[DefinitionError] = []
    warnings: list[DefinitionError] = []
    known = {each.members["name"]: _created(each) for each in before if each.kind == EVENT_TYPE}
    wanted = dict(known)
    failed: set[str] = set()
    for each in definitions:
        if each.kind != EVENT_TYPE:
            continue
        name = each.members["name"]
        try:
            wanted[name] = _event_type(each, known.get(name))
        except Invalid as ex:
            failed.add(name)
            problems.append(_problem(each, str(ex)))
    for each in definitions:
        if each.kind == EVENT_TYPE:
            continue
        try:
            warnings += [_problem(each, text) for text in _subscription(each, wanted, failed)]
        except Invalid as ex:
            problems.append(_problem(each, str(ex)))
    return Findings(sorted(problems), sorted(warnings))


def _problem(about: Definition, text: str) -> DefinitionError:
    return DefinitionError(about.place, about.name, "; ".join(text.splitlines()))


def _created(definition: Definition) -> EventType:
    try:
        return _event_type(definition, None)
    except Invalid as ex:
        raise Invalid(
            f"{_problem(definition, str(ex))}; definitions are compared with those that a broker took."
        ) from ex


def _event_type(definition: Definition, before: EventType | None) -> EventType:
    """The event type that the broker would have then; raises Invalid."""
    current = None if before is None else msgspec.convert(msgspec.to_builtins(before), ClientEventType)
    planned = step(definition, current)
    check_step(planned)
    return outcome(planned)


def _subscription(definition: Definition, event_types: Mapping[str, EventType], failed: set[str]) -> Sequence[str]:
    """The warnings for a subscription; raises Invalid."""
    planned = step(definition, None)
    check_step(planned)
    assert planned.after is not None
    names = planned.after["event_types"]
    if missing := [name for name in names if name not in event_types and name not in failed]:
        raise Invalid(f"there is no event type {', '.join(missing)} in the files")
    expression = planned.after.get("filter")
    if not expression or failed.intersection(names):
        return ()
    # PERF: the import takes 0.3 s, for which only definitions with a filter wait.
    from rioni.domain.subscriptions.filter_check import check_filter

    return check_filter(expression, schemas_in_json(event_types[name] for name in names))
