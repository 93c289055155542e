"""Validation rules for creating and updating event types (reference event-types#definition)."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from rioni.domain.access.authorization import check_duplicates
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_types.event_type import (
    IDEMPOTENT_PUBLISHING,
    EventOwnerSelector,
    EventType,
    EventTypeSpec,
    Options,
    Schema,
    Statistic,
    SubmittedSchema,
    annotation_violations,
    label_violations,
    stores_eids_once,
    switch_violations,
)
from rioni.domain.limits import PATH_CHARACTERS_MAX, Limits, authorization_violations, nul_violations, path_violations


CATEGORIES = ("undefined", "data", "business")
PARTITION_STRATEGIES = ("hash", "user_defined", "random")
ENRICHMENT_STRATEGIES = ("metadata_enrichment",)
COMPATIBILITY_MODES = ("compatible", "forward", "none")
CLEANUP_POLICIES = ("delete", "compact", "compact_and_delete")
SCHEMA_TYPES = ("json_schema", "avro_schema")
AUDIENCES = (
    "component-internal",
    "business-unit-internal",
    "company-internal",
    "external-partner",
    "external-public",
)
OWNER_SELECTOR_TYPES = ("path", "static")
NAME_CHARACTERS_MAX = 255

_NAME = re.compile(r"[a-zA-Z][-0-9a-zA-Z_]*(\.[0-9a-zA-Z][-0-9a-zA-Z_]*)*")


def check_fields(spec: EventTypeSpec) -> None:
    """Check each field by itself.

    Raises:
        InvalidFields: names every field that breaks its constraint (reference event-types#fields).
    """
    InvalidFields.check(_field_violations(spec))


def _field_violations(spec: EventTypeSpec) -> Iterator[tuple[str, str]]:
    for required in ("name", "owning_application", "category", "schema"):
        if getattr(spec, required) is None:
            yield required, "must not be null"
    yield from nul_violations("owning_application", spec.owning_application)
    if spec.name is not None:
        yield from _name_violations(spec.name)
    if spec.schema is not None:
        yield from schema_violations(spec.schema, "schema.")
    if spec.default_statistic is not None:
        yield from _statistic_violations(spec.default_statistic)
    yield from _list_violations(spec)
    if spec.event_owner_selector is not None and not spec.event_owner_selector.name:
        yield "event_owner_selector.name", "the length of the name must be >= 1"
    yield from annotation_violations(spec.annotations or {})
    yield from switch_violations(spec.annotations or {})
    yield from label_violations(spec.labels or {})


def _list_violations(spec: EventTypeSpec) -> Iterator[tuple[str, str]]:
    yield from authorization_violations(spec.authorization)
    for field in ("partition_key_fields", "ordering_key_fields", "ordering_instance_ids"):
        yield from path_violations(field, getattr(spec, field))
    if spec.event_owner_selector is not None and len(spec.event_owner_selector.value) > PATH_CHARACTERS_MAX:
        yield "event_owner_selector.value", f"must not have more than {PATH_CHARACTERS_MAX} characters"


def is_event_type_name(name: str) -> bool:
    """Whether a broker may name an event type so: such a name is also safe as the name of a file."""
    return not any(_name_violations(name))


def _name_violations(name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name[: NAME_CHARACTERS_MAX + 1]):
        yield "name", "format not allowed"
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        yield "name", f"the length of the name must be >= 1 and <= {NAME_CHARACTERS_MAX}"


def schema_violations(schema: SubmittedSchema, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the missing members of a submitted schema."""
    for member in ("type", "schema"):
        if getattr(schema, member) is None:
            yield f"{prefix}{member}", "must not be null"
    if schema.type is not None and schema.type not in SCHEMA_TYPES:
        yield f"{prefix}type", f"must be one of {', '.join(SCHEMA_TYPES)}"


def _statistic_violations(statistic: Statistic) -> Iterator[tuple[str, str]]:
    for member, least, message in (
        ("messages_per_minute", 0, "can't be less then zero"),
        ("message_size", 1, "can't be less then 1"),
        ("read_parallelism", 1, "at least one reader expected"),
        ("write_parallelism", 1, "at least one writer expected"),
    ):
        if getattr(statistic, member) < least:
            yield f"default_statistic.{member}", message


def check_retention(options: Options | None, limits: Limits) -> None:
    """Check the retention time against the broker's limits.

    Raises:
        InvalidFields: too long or too short.
    """
    if options is None or options.retention_time is None:
        return
    if options.retention_time > limits.retention_max_ms:
        raise InvalidFields([("options.retention_time", f"can not be more than {limits.retention_max_ms}")])
    if options.retention_time < limits.retention_min_ms:
        raise InvalidFields([("options.retention_time", f"can not be less than {limits.retention_min_ms}")])


def check_strategies(event_type: EventType) -> None:
    """Check that category, cleanup policy, enrichment and partitioning are consistent.

    Source: reference event-types#partition-strategies, event-types#cleanup-policy.

    Raises:
        Invalid: names the first broken rule, in the contract's order.
    """
    if event_type.category == "undefined" and event_type.cleanup_policy != "delete":
        raise Invalid(
            "cleanup_policy 'compact' and 'compact_and_delete' is not available for 'undefined' event type category"
        )
    if event_type.category == "undefined" and stores_eids_once(event_type):
        raise Invalid(
            f"annotation {IDEMPOTENT_PUBLISHING} goes by metadata.eid, which events of category 'undefined' do not "
            f"have. Publish them with the header Idempotency-Key"
        )
    _check_enrichment(event_type)
    _check_partitioning(event_type)
    if event_type.ordering_instance_ids and not event_type.ordering_key_fields:
        raise Invalid("`ordering_instance_ids` field can not be defined without defining `ordering_key_fields`")


def _check_enrichment(event_type: EventType) -> None:
    strategies = event_type.enrichment_strategies
    for strategy in strategies:
        if strategy not in ENRICHMENT_STRATEGIES:
            raise Invalid(f"enrichment strategy does not exist: {strategy}")
    if len(set(strategies)) < len(strategies):
        raise Invalid("enrichment strategies must not contain duplicated entries")
    if event_type.category == "undefined" and strategies:
        raise Invalid("must not define enrichment strategy for undefined event type")
    if event_type.category != "undefined" and not strategies:
        raise Invalid("must define metadata enrichment strategy")


def _check_partitioning(event_type: EventType) -> None:
    strategy = event_type.partition_strategy
    if strategy not in PARTITION_STRATEGIES:
        raise Invalid(f"partition strategy does not exist: {strategy}")
    if strategy == "hash" and not event_type.partition_key_fields:
        raise Invalid("partition_key_fields field should be set for partition strategy 'hash'")
    if strategy == "user_defined" and event_type.category == "undefined":
        raise Invalid("'user_defined' partition strategy can't be used for EventType of category 'undefined'")


def check_authorization(event_type: EventType) -> None:
    """Check the authorization section for duplicates.

    Raises:
        Invalid: a list has an attribute twice.
    """
    if (section := event_type.authorization) is not None:
        check_duplicates((("ADMIN", section.admins), ("READ", section.readers), ("WRITE", section.writers)))


def partition_count(statistic: Statistic | None, limits: Limits) -> int:
    """The initial number of partitions of an event type (reference event-types#create-checks)."""
    if statistic is None:
        return limits.partitions_default
    return min(max(statistic.read_parallelism, statistic.write_parallelism), limits.partitions_max)


def new(spec: EventTypeSpec, *, now: str, limits: Limits) -> EventType:
    """Build the state of a new event type from a checked submission: defaults filled in, its schema as version 1.0.0.

    Args:
        spec: has passed `check_fields`.
        now: RFC 3339 with milliseconds.
        limits: have the default retention time.

    Raises:
        Invalid: the partition strategy is null.
    """
    if spec.partition_strategy is None:
        raise Invalid("partition strategy must not be null")
    submitted = spec.schema or SubmittedSchema()
    retention = spec.options.retention_time if spec.options else None
    return EventType(
        name=spec.name or "",
        owning_application=spec.owning_application or "",
        category=spec.category or "",
        enrichment_strategies=spec.enrichment_strategies or (),
        partition_strategy="random" if spec.partition_strategy is UNSET else spec.partition_strategy,
        partition_key_fields=spec.partition_key_fields or (),
        cleanup_policy=spec.cleanup_policy or "delete",
        ordering_key_fields=spec.ordering_key_fields or (),
        ordering_instance_ids=spec.ordering_instance_ids or (),
        schema=Schema(type=submitted.type or "", schema=submitted.schema or "", version="1.0.0", created_at=now),
        default_statistic=spec.default_statistic,
        options=Options(retention_time=limits.retention_default_ms if retention is None else retention),
        authorization=spec.authorization,
        annotations=spec.annotations or {},
        labels=spec.labels or {},
        compatibility_mode=spec.compatibility_mode or "forward",
        audience=spec.audience or UNSET,
        event_owner_selector=spec.event_owner_selector or UNSET,
        updated_at=now,
        created_at=now,
    )


def check_owning_application(owning_application: str, limits: Limits) -> None:
    """Check that the owning application exists.

    Raises:
        Invalid: the setting `owning_applications` does not describe it.
    """
    if not re.fullmatch(limits.owning_applications, owning_application):
        raise Invalid(f"Owning application is not valid: {owning_application}")


def changed(
    current: EventType,
    spec: EventTypeSpec,
    *,
    now: str,
    limits: Limits,
    by_admin: bool = False,
    by_its_admin: bool = False,
) -> EventType:
    """Build the updated state of an event type from a checked submission, with the current schema.

    Absent members keep their values if the contract defines it (reference event-types#fields, column "On update").

    Args:
        current: the current state.
        spec: has passed `check_fields`.
        now: RFC 3339 with milliseconds.
        limits: give the default retention time.
        by_admin: whether an administrator of the broker submits it: only these may change the partition strategy and
            the owner selector in certain ways.
        by_its_admin: whether an administrator of the event type submits it: these, and the broker's administrators, may
            relax the compatibility mode.

    Raises:
        Invalid: an immutable member would change (reference event-types#update-checks).
    """
    if spec.name != current.name:
        raise Invalid("path does not match resource name")
    if current.authorization is not None and spec.authorization is None:
        raise Invalid("Changing authorization object to `null` is not possible due to existing one")
    wanted = msgspec.structs.replace(
        new(spec, now=now, limits=limits),
        schema=current.schema,
        json_schema=current.json_schema,
        created_at=current.created_at,
    )
    kept: dict[str, Any] = {
        field: getattr(current, field)
        for field in ("default_statistic", "annotations", "labels")
        if getattr(spec, field) is None
    }
    if spec.options is None or spec.options.retention_time is None:
        kept["options"] = current.options
    if spec.cleanup_policy is None:
        kept["cleanup_policy"] = current.cleanup_policy
    wanted = msgspec.structs.replace(wanted, **kept)
    _check_evolution(current, wanted, by_admin=by_admin, may_relax=by_admin or by_its_admin)
    unchanged = msgspec.structs.replace(wanted, updated_at=current.updated_at)
    return current if unchanged == current else wanted


def _keeps_its_promise(current: EventType, wanted: EventType) -> bool:
    """Whether the compatibility mode is unchanged, or one step stricter (reference schemas#mode-transitions)."""
    change = (current.compatibility_mode, wanted.compatibility_mode)
    return change[0] == change[1] or change in (("none", "forward"), ("forward", "compatible"))


def _check_evolution(current: EventType, wanted: EventType, *, by_admin: bool, may_relax: bool) -> None:
    transition = (current.cleanup_policy, wanted.cleanup_policy)
    if current.cleanup_policy != wanted.cleanup_policy and transition != ("delete", "compact_and_delete"):
        raise Invalid(
            f"Invalid cleanup_policy change: {current.cleanup_policy.upper()} cannot be changed to "
            f"{wanted.cleanup_policy.upper()}"
        )
    if current.audience is not UNSET and wanted.audience is UNSET:
        raise Invalid("event audience must not be set back to null")
    if not by_admin:
        _check_owner_selector(current, wanted)
    problems = list(_evolution_problems(current, wanted, by_admin=by_admin, may_relax=may_relax))
    if problems:
        raise Invalid("; ".join(problems))
    before, after = current.default_statistic, wanted.default_statistic
    if before is not None and after is not None:
        if (before.read_parallelism, before.write_parallelism) != (after.read_parallelism, after.write_parallelism):
            raise Invalid("default statistics must not be changed")
    elif after is not None:
        raise Invalid("default statistics must not be changed")


def _check_owner_selector(current: EventType, wanted: EventType) -> None:
    before, after = current.event_owner_selector, wanted.event_owner_selector
    if before is UNSET or before == after:
        return
    if after is UNSET:
        raise Invalid("event_owner_selector can't be set back to null")
    assert isinstance(before, EventOwnerSelector)
    assert isinstance(after, EventOwnerSelector)
    original, updated = (
        f"{{ type: {selector.type.upper()}, name: {selector.name}, value: {selector.value} }}"
        for selector in (before, after)
    )
    raise Invalid(f"event_owner_selector must not be changed, original: {original}, updated: {updated}")


def _evolution_problems(current: EventType, wanted: EventType, *, by_admin: bool, may_relax: bool) -> Iterator[str]:
    """Yield an error for each forbidden change; a change from `undefined` to `business` is allowed.

    Source: reference event-types#update-checks.
    """
    upgrade = (current.category, wanted.category) == ("undefined", "business") and (
        "metadata_enrichment" in wanted.enrichment_strategies and wanted.compatibility_mode != "compatible"
    )
    if current.category != wanted.category and not upgrade:
        yield (
            "Category change is allowed only from 'undefined' to 'business'. "
            "'enrichment_strategies' should be properly set as well"
        )
    if not (may_relax or _keeps_its_promise(current, wanted)):
        yield "changing compatibility_mode is not allowed"
    if wanted.partition_strategy == "hash" and not wanted.partition_key_fields:
        yield "partition_key_fields is required when partition strategy is 'hash'"
    if current.partition_strategy not in ("random", wanted.partition_strategy) and not by_admin:
        yield "changing partition_strategy is only allowed if the original strategy was 'random'"
    if current.enrichment_strategies != wanted.enrichment_strategies and not upgrade:
        yield "changing enrichment_strategies is not allowed"
