"""For any history of commands the live read models, a replay of the log, and the registry in memory agree."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from rioni.commands.event_types import AddSchema, ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.commands.system.storages import AddBlacklistEntry, RemoveBlacklistEntry, SwitchFeature
from rioni.domain.errors import RioniError
from rioni.domain.event_types.event_type import SubmittedSchema
from rioni.projections.fold import EMPTY, decode_state, encode_state, fold
from rioni.projections.projector import Projector, all_states
from rioni.projections.tables import READ_MODELS
from rioni.storage.sql.engines import writing
from tests.support.broker import Broker, running_broker
from tests.support.builders import SCHEMA, event_type_spec, subscription_spec


NAMES = st.sampled_from(["a", "b.c"])
WIDER = [SCHEMA, SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1), SCHEMA.replace("string", "integer")]
SCHEMAS = st.sampled_from(WIDER).map(lambda text: SubmittedSchema(type="json_schema", schema=text))
APPLICATIONS = st.sampled_from(["shop", "billing"])
FEATURES = st.sampled_from(
    ["kpi_collection", "delete_event_type_with_subscriptions", "disable_event_type_creation", "nope"]
)
SPECS = st.builds(event_type_spec, name=NAMES, owning_application=APPLICATIONS, schema=SCHEMAS)
SUBSCRIPTION_SPECS = st.builds(
    subscription_spec,
    owning_application=APPLICATIONS,
    event_types=st.lists(NAMES, min_size=1, max_size=2).map(tuple),
    labels=st.sampled_from([{}, {"team": "x"}]),
)
BLOCKED = {"type": st.sampled_from(["CONSUMER_APP", "PRODUCER_ET"]), "name": NAMES}

COMMANDS = st.lists(
    st.one_of(
        st.builds(CreateEventType, spec=SPECS),
        st.builds(ChangeEventType, name=NAMES, spec=SPECS),
        st.builds(DeleteEventType, name=NAMES),
        st.builds(AddSchema, name=NAMES, schema=SCHEMAS),
        st.builds(CreateSubscription, spec=SUBSCRIPTION_SPECS),
        st.tuples(st.just(ChangeSubscription), SUBSCRIPTION_SPECS),
        st.tuples(st.just(DeleteSubscription), SUBSCRIPTION_SPECS),
        st.builds(SwitchFeature, feature=FEATURES, enabled=st.booleans()),
        st.builds(AddBlacklistEntry, **BLOCKED),
        st.builds(RemoveBlacklistEntry, **BLOCKED),
    ),
    max_size=15,
)


def give(broker: Broker, command) -> None:
    """Run a command; an error is a possible result, and must leave nothing behind."""
    head = broker.log.head()
    try:
        if isinstance(command, tuple):
            kind, spec = command
            subscription, _ = broker.do(CreateSubscription(spec=spec))
            head = broker.log.head()
            change = {"spec": spec} if kind is ChangeSubscription else {}
            command = kind(subscription_id=subscription.id, **change)
        broker.do(command)
    except RioniError:
        assert broker.log.head() == head


def rows(broker: Broker) -> dict[str, list]:
    with broker.engine.connect() as connection:
        return {
            name: sorted(map(repr, connection.execute(select(table)))) for name, table in READ_MODELS.tables.items()
        }


@contextlib.contextmanager
def fresh_broker():
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "data") as broker:
        yield broker


@settings(max_examples=25)
@given(COMMANDS)
def test_replay_live_and_registry_agree_on_any_history_of_commands(commands):
    with fresh_broker() as broker:
        for command in commands:
            give(broker, command)
        live = rows(broker)
        broker.registry.refresh()
        with broker.engine.connect() as connection:
            states = {(kind, key): state for kind, key, state in all_states(connection)}
        for (kind, key), state in states.items():
            if kind == "event-type":
                assert broker.registry.event_type(key) == state
            elif kind == "subscription":
                assert broker.registry.subscription(key) == state
        with writing(broker.engine) as connection:
            Projector().clear(connection)
            Projector().apply(connection, broker.log.entries(0, 10_000))
        assert rows(broker) == live


@settings(max_examples=25)
@given(COMMANDS)
def test_any_prefix_of_the_log_is_a_valid_state(commands):
    with fresh_broker() as broker:
        for command in commands:
            give(broker, command)
        folded = {}
        for entry in broker.log.entries(0, 10_000):
            folded[entry.stream], changes = fold(folded.get(entry.stream, EMPTY), entry)
            kind, after = entry.event.kind, folded[entry.stream]
            assert decode_state(kind, encode_state(after.state)) == after.state
            assert all(change.table in READ_MODELS.tables for change in changes)
            assert all(
                set(change.row) == set(READ_MODELS.tables[change.table].columns.keys())
                for change in changes
                if change.row is not None
            )
