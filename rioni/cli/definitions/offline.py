"""Checks definitions by the rules of the broker, without one: against each other, and against those of before."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from rioni.cli.definitions import broker_rules
from rioni.cli.definitions.definition import EVENT_TYPE, Definition, Problem
from rioni.cli.definitions.steps import step
from rioni.domain.avro.event_schema import schemas_in_json
from rioni.domain.errors import Invalid
from rioni.domain.event_types.event_type import EventType
from rioni.domain.subscriptions.filter_check import check_filter
from rioni.wire.event_types import EventType as ClientEventType


class Findings(NamedTuple):
    """The problems of definitions, and warnings about them."""

    problems: Sequence[Problem]
    warnings: Sequence[Problem]


def check(definitions: Sequence[Definition], before: Sequence[Definition] = ()) -> Findings:
    """Check definitions as a broker would that has the state of `before`; what depends on its settings is left out.

    Args:
        definitions: each of another resource.
        before: those that were applied last; without them everything is new.

    Raises:
        Invalid: one of those of before is none that a broker has taken.
    """
    problems: list[Problem] = []
    warnings: list[Problem] = []
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


def _problem(about: Definition, text: str) -> Problem:
    return Problem(about.place, about.name, "; ".join(text.splitlines()))


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
    broker_rules.check(planned)
    return broker_rules.outcome(planned)


def _subscription(definition: Definition, event_types: Mapping[str, EventType], failed: set[str]) -> Sequence[str]:
    """The warnings for a subscription; raises Invalid."""
    planned = step(definition, None)
    broker_rules.check(planned)
    assert planned.after is not None
    names = planned.after["event_types"]
    if missing := [name for name in names if name not in event_types and name not in failed]:
        raise Invalid(f"there is no event type {', '.join(missing)} in the files")
    expression = planned.after.get("filter")
    if not expression or failed.intersection(names):
        return ()
    return check_filter(expression, schemas_in_json(event_types[name] for name in names))
