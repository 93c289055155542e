import pytest
from msgspec import UNSET

from rioni.domain.access.authorization import Attribute, EventTypeAuthorization
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_types import rules
from rioni.domain.event_types.event_type import EventOwnerSelector, Options, Statistic, SubmittedSchema
from rioni.domain.limits import Limits
from tests.support.builders import LATER, NOW, as_spec, event_type, event_type_spec


ALICE = Attribute("user", "alice")


def statistic(**changes):
    return Statistic(
        **{"messages_per_minute": 1, "message_size": 1, "read_parallelism": 1, "write_parallelism": 1} | changes
    )


def change(state, *, by_admin=False, by_its_admin=False, **changes):
    spec = as_spec(state)
    spec = type(spec)(**{field: getattr(spec, field) for field in spec.__struct_fields__} | changes)
    return rules.changed(state, spec, now=LATER, limits=Limits(), by_admin=by_admin, by_its_admin=by_its_admin)


def problem_of(check, *arguments):
    """The error of a check for a submission; empty if it is valid."""
    try:
        check(*arguments)
    except InvalidFields as ex:
        return str(ex)
    return ""


EMPTY_KEY = [
    'Field "annotations[]" Key cannot be empty',
    'Field "annotations[]" Key name should start and end with a letter or a digit',
]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"name": None}, 'Field "name" must not be null'),
        ({"name": "1a"}, 'Field "name" format not allowed'),
        ({"name": "a..b"}, 'Field "name" format not allowed'),
        ({"name": "a" * 256}, 'Field "name" the length of the name must be >= 1 and <= 255'),
        ({"owning_application": None}, 'Field "owning_application" must not be null'),
        ({"category": None}, 'Field "category" must not be null'),
        ({"schema": None}, 'Field "schema" must not be null'),
        ({"schema": SubmittedSchema(type="json_schema")}, 'Field "schema.schema" must not be null'),
        ({"schema": SubmittedSchema(schema="{}")}, 'Field "schema.type" must not be null'),
        (
            {"default_statistic": statistic(messages_per_minute=-1)},
            'Field "default_statistic.messages_per_minute" can\'t be less then zero',
        ),
        (
            {"default_statistic": statistic(message_size=0)},
            'Field "default_statistic.message_size" can\'t be less then 1',
        ),
        (
            {"default_statistic": statistic(read_parallelism=0)},
            'Field "default_statistic.read_parallelism" at least one reader expected',
        ),
        (
            {"default_statistic": statistic(write_parallelism=0)},
            'Field "default_statistic.write_parallelism" at least one writer expected',
        ),
        (
            {"authorization": EventTypeAuthorization(admins=(), readers=(ALICE,), writers=(ALICE,))},
            'Field "authorization.admins" must contain at least one attribute',
        ),
        ({"annotations": {"": "x"}}, "\n".join(EMPTY_KEY)),
        (
            {"annotations": {"rioni.io/idempotent-publishing": "yes"}},
            'Field "annotations[rioni.io/idempotent-publishing]" must be one of on, off',
        ),
        ({"labels": {"a": "!"}}, 'Field "labels[a]" Should contain only allowed symbols'),
    ],
)
def test_a_field_that_violates_its_constraint_is_named(changes, line):
    """Reference event-types#name, event-types#default-statistic."""
    assert problem_of(rules.check_fields, event_type_spec(**changes)) == line + "\n"


def test_all_fields_that_violate_constraints_are_named_together():
    """Reference common#field-violations."""
    with pytest.raises(InvalidFields) as caught:
        rules.check_fields(event_type_spec(name=None, category=None, annotations={"-": "x"}))
    assert [path for path, _ in caught.value.violations] == ["name", "category", "annotations[-]"]


def test_a_valid_submission_is_accepted():
    annotations = [{"nakadi.io/x": "y"}, *({"rioni.io/idempotent-publishing": switch} for switch in ("on", "off"))]
    for each in annotations:
        assert problem_of(rules.check_fields, event_type_spec(annotations=each, labels={"team": ""})) == ""


@pytest.mark.parametrize(
    ("retention", "message"),
    [(10_799_999, "can not be less than 10800000"), (345_600_001, "can not be more than 345600000")],
)
def test_the_retention_time_has_limits(retention, message):
    """Reference event-types#retention-time."""
    assert message in problem_of(rules.check_retention, Options(retention_time=retention), Limits())


@pytest.mark.parametrize("retention", [10_800_000, 345_600_000, None])
def test_the_limits_of_the_retention_time_are_included(retention):
    """Reference event-types#retention-time."""
    assert problem_of(rules.check_retention, Options(retention_time=retention), Limits()) == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"category": "undefined"}, "must not define enrichment strategy for undefined event type"),
        ({"enrichment_strategies": ()}, "must define metadata enrichment strategy"),
        (
            {
                "category": "undefined",
                "enrichment_strategies": (),
                "annotations": {"rioni.io/idempotent-publishing": "on"},
            },
            (
                "annotation rioni.io/idempotent-publishing goes by metadata.eid, which events of category 'undefined' "
                "do not have. Publish them with the header Idempotency-Key"
            ),
        ),
        (
            {"enrichment_strategies": ("metadata_enrichment", "metadata_enrichment")},
            "enrichment strategies must not contain duplicated entries",
        ),
        ({"enrichment_strategies": ("x",)}, "enrichment strategy does not exist: x"),
        ({"partition_strategy": "foo"}, "partition strategy does not exist: foo"),
        (
            {"partition_strategy": "hash"},
            "partition_key_fields field should be set for partition strategy 'hash'",
        ),
        (
            {"category": "undefined", "enrichment_strategies": (), "partition_strategy": "user_defined"},
            "'user_defined' partition strategy can't be used for EventType of category 'undefined'",
        ),
        (
            {"category": "undefined", "enrichment_strategies": (), "cleanup_policy": "compact"},
            "cleanup_policy 'compact' and 'compact_and_delete' is not available for 'undefined' event type category",
        ),
        (
            {"ordering_instance_ids": ("order_id",)},
            "`ordering_instance_ids` field can not be defined without defining `ordering_key_fields`",
        ),
    ],
)
def test_inconsistent_strategies_are_rejected(changes, message):
    """Reference event-types#enrichment-strategies, event-types#partition-strategies, publishing#event-ids."""
    with pytest.raises(Invalid) as caught:
        rules.check_strategies(event_type(**changes))
    assert str(caught.value) == message


def test_a_null_partition_strategy_is_rejected_and_an_absent_one_is_random():
    """Reference event-types#partition-strategies."""
    with pytest.raises(Invalid, match="partition strategy must not be null"):
        event_type(partition_strategy=None)
    assert event_type(partition_strategy=UNSET).partition_strategy == "random"


def test_an_attribute_may_occur_only_once_in_a_list():
    """Reference authorization#duplicates."""
    twice = EventTypeAuthorization(admins=(ALICE, ALICE), readers=(ALICE,), writers=(ALICE,))
    with pytest.raises(Invalid) as caught:
        rules.check_authorization(event_type(authorization=twice))
    assert str(caught.value) == "authorization property 'ADMIN' contains duplicated attribute(s): user:alice"


@pytest.mark.parametrize(
    ("statistic_", "partitions"),
    [
        (None, 1),
        (statistic(read_parallelism=3), 3),
        (statistic(read_parallelism=2, write_parallelism=5), 5),
        (statistic(read_parallelism=100), 8),
    ],
)
def test_the_expected_parallelism_decides_the_number_of_partitions(statistic_, partitions):
    """Reference event-types#partition-count."""
    assert rules.partition_count(statistic_, Limits()) == partitions


def test_defaults_are_filled_in():
    state = event_type()
    assert state.cleanup_policy == "delete"
    assert state.compatibility_mode == "forward"
    assert state.options == Options(retention_time=172_800_000)
    assert state.schema.version == "1.0.0"
    assert state.created_at == state.updated_at == NOW


def test_putting_the_unchanged_event_type_changes_nothing():
    state = event_type(
        annotations={"a": "b"},
        audience="company-internal",
        default_statistic=statistic(),
        authorization=EventTypeAuthorization(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,)),
        event_owner_selector=EventOwnerSelector(type="static", name="team", value="x"),
    )
    assert change(state) is state


def test_fields_omitted_in_a_change_are_kept():
    """Reference event-types#kept-fields."""
    state = event_type(annotations={"a": "b"}, labels={"c": "d"}, default_statistic=statistic())
    changed = change(state, annotations=None, labels=None, default_statistic=None, options=None)
    assert changed is state


def test_a_change_keeps_the_creation_time_and_updates_the_time_of_the_last_change():
    changed = change(event_type(), owning_application="other")
    assert (changed.owning_application, changed.created_at, changed.updated_at) == ("other", NOW, LATER)


SELECTOR = EventOwnerSelector(type="static", name="team", value="a")


@pytest.mark.parametrize(
    ("before", "changes", "message"),
    [
        ({}, {"name": "other"}, "path does not match resource name"),
        ({}, {"category": "data"}, "Category change is allowed only from 'undefined' to 'business'."),
        ({}, {"enrichment_strategies": ()}, "changing enrichment_strategies is not allowed"),
        (
            {"partition_strategy": "user_defined"},
            {"partition_strategy": "random"},
            "changing partition_strategy is only allowed if the original strategy was 'random'",
        ),
        (
            {},
            {"partition_strategy": "hash"},
            "partition_key_fields is required when partition strategy is 'hash'",
        ),
        (
            {"cleanup_policy": "compact"},
            {"cleanup_policy": "delete"},
            "Invalid cleanup_policy change: COMPACT cannot be changed to DELETE",
        ),
        ({"audience": "company-internal"}, {"audience": None}, "event audience must not be set back to null"),
        (
            {"event_owner_selector": SELECTOR},
            {"event_owner_selector": None},
            "event_owner_selector can't be set back to null",
        ),
        (
            {"event_owner_selector": SELECTOR},
            {"event_owner_selector": EventOwnerSelector(type="static", name="team", value="b")},
            (
                "event_owner_selector must not be changed, original: { type: STATIC, name: team, value: a }, "
                "updated: { type: STATIC, name: team, value: b }"
            ),
        ),
        (
            {"default_statistic": statistic()},
            {"default_statistic": statistic(read_parallelism=2)},
            "default statistics must not be changed",
        ),
        (
            {"authorization": EventTypeAuthorization(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,))},
            {"authorization": None},
            "Changing authorization object to `null` is not possible due to existing one",
        ),
    ],
)
def test_changes_of_constant_fields_are_rejected(before, changes, message):
    """A change of each constant field, with the text of its rejection.

    Source: reference event-types#constrained-changes, event-types#owner-selector-change, event-types#statistic-changes,
    event-types#audience.
    """
    with pytest.raises(Invalid) as caught:
        change(event_type(**before), **changes)
    assert str(caught.value).startswith(message)


def test_an_undefined_event_type_may_become_a_business_one():
    """Reference event-types#category-change."""
    state = event_type(category="undefined", enrichment_strategies=())
    changed = change(state, category="business", enrichment_strategies=("metadata_enrichment",))
    assert changed.category == "business"


def test_cleanup_policy_delete_may_become_compact_and_delete():
    """Reference event-types#cleanup-policy-change."""
    assert change(event_type(), cleanup_policy="compact_and_delete").cleanup_policy == "compact_and_delete"


def test_administrators_of_the_broker_may_change_strategy_and_owners():
    """Reference event-types#fields, event-types#update-checks: changes that only they may make.

    Source: reference event-types#owner-selector-change, authorization#administrator-exemptions.
    """
    state = event_type(
        partition_strategy="hash",
        partition_key_fields=("order_id",),
        event_owner_selector=EventOwnerSelector(type="static", name="team", value="a"),
    )
    for changes in ({"partition_strategy": "random"}, {"event_owner_selector": None}):
        with pytest.raises(Invalid):
            change(state, **changes)
    changed = change(state, by_admin=True, partition_strategy="random", event_owner_selector=None)
    assert (changed.partition_strategy, changed.event_owner_selector) == ("random", UNSET)


@pytest.mark.parametrize(
    ("owning_application", "known"), [("shop", True), ("billing", True), ("shop2", False), ("", False)]
)
def test_an_owning_application_must_exist(owning_application, known):
    """Reference event-types#owning-application."""
    limits = Limits(owning_applications="shop|billing")
    if known:
        rules.check_owning_application(owning_application, limits)
    else:
        with pytest.raises(Invalid, match=f"Owning application is not valid: {owning_application}"):
            rules.check_owning_application(owning_application, limits)


@pytest.mark.parametrize(
    ("before", "after", "anybody_may"),
    [
        ("none", "forward", True),
        ("none", "compatible", False),
        ("forward", "none", False),
        ("forward", "forward", True),
        ("forward", "compatible", True),
        ("compatible", "none", False),
        ("compatible", "forward", False),
    ],
)
def test_only_administrators_relax_the_compatibility_mode_or_skip_a_step(before, after, anybody_may):
    """Reference schemas#mode-transitions."""
    state = event_type(compatibility_mode=before)
    for admin in ({"by_admin": True}, {"by_its_admin": True}):
        assert change(state, compatibility_mode=after, **admin).compatibility_mode == after
    if anybody_may:
        assert change(state, compatibility_mode=after).compatibility_mode == after
        return
    with pytest.raises(Invalid, match=r"^changing compatibility_mode is not allowed$"):
        change(state, compatibility_mode=after)
