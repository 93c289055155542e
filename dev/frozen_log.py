"""The internal logs as releases wrote them, kept for ever: later releases must fold them to the same read models.

    python -m dev.frozen_log

records the log of the present release again, through its own commands, and prints what `tests/test_frozen_log.py` pins.
Only for a release that is not published yet: the log of a published one never changes.
"""

import contextlib
import hashlib
import json
import lzma
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine, insert, select, update

from rioni import __version__
from rioni.commands.event_types import AddSchema, ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import (
    ChangeSubscription,
    CreateSubscription,
    DeleteSubscription,
    RecordCursorsReset,
    RecordDeadLettersRedriven,
)
from rioni.commands.system.anchoring import AnchorEventChains, RecordDigests
from rioni.commands.system.checkpoint_signer import AddLogKey
from rioni.commands.system.storages import (
    AcceptLoss,
    AddBlacklistEntry,
    CreateStorage,
    DeleteStorage,
    MoveStorage,
    RemoveBlacklistEntry,
    SetAdmins,
    SetDefaultStorage,
    SwitchFeature,
)
from rioni.commands.timelines.timelines import CleanUpTimeline, Repartition, StartSwitch
from rioni.domain.access.authorization import Attribute, EventTypeAuthorization, SubscriptionAuthorization
from rioni.domain.errors import Unavailable
from rioni.domain.event_types.event_type import EventOwnerSelector, Options, Statistic, SubmittedSchema
from rioni.domain.subscriptions.dead_letters import DeadLetterFilter
from rioni.domain.subscriptions.subscription import InitialCursor
from rioni.domain.system.anchors import ChainHead
from rioni.domain.system.settings import BLACKLIST_TYPES, FEATURES, Admins
from rioni.domain.system.storages import KAFKA, StorageEntry
from rioni.domain.timelines.topics import DigestedBlock
from rioni.domain.transparency.checkpoint import verifier_of
from rioni.domain.transparency.log_keys import sign_successor
from rioni.projections.tables import READ_MODELS
from rioni.sql.log_tables import HEAD, LOG
from tests.support.avro import avro_schema
from tests.support.broker import RETENTION_INTERVAL_S, Broker, running_broker
from tests.support.builders import LATER_MS, as_spec, event_type_spec, subscription_spec


FOLDER = Path(__file__).parents[1] / "tests/frozen"
EVENT_TYPES = 12
ALICE, SHOP = Attribute("user", "alice"), Attribute("service", "stups_shop")


def path_of(release: str) -> Path:
    """The path of the log of a release."""
    return FOLDER / f"log-{release}.jsonl.xz"


def rows_of(release: str) -> Sequence[dict[str, Any]]:
    """The rows of the table `log` as the release wrote them."""
    rows = [json.loads(line) for line in lzma.decompress(path_of(release).read_bytes()).splitlines()]
    return [row | {"data": row["data"].encode(), "hash": bytes.fromhex(row["hash"])} for row in rows]


def load(engine: Engine, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows into an empty log."""
    with engine.begin() as connection:
        connection.execute(insert(LOG), rows)
        connection.execute(update(HEAD).values(position=rows[-1]["position"], hash=rows[-1]["hash"]))


def digest_of_read_models(engine: Engine) -> str:
    """The contents of all read models, as one hash."""
    digest = hashlib.sha256()
    with engine.connect() as connection:
        for table in READ_MODELS.sorted_tables:
            for row in connection.execute(select(table).order_by(*table.primary_key.columns)):
                digest.update(json.dumps([table.name, *row], ensure_ascii=False).encode())
    return digest.hexdigest()


def _record(broker: Broker) -> None:
    """Execute every command of the broker at least once."""
    storages = [StorageEntry(id=name, storage_type="embedded", default=False) for name in ("fast", "large", "brief")]
    for storage in storages:
        broker.do(CreateStorage(storage=storage))
    kafka = {"bootstrap_servers": "kafka:9092"}
    broker.do(CreateStorage(storage=StorageEntry(id="far", storage_type=KAFKA, default=False, configuration=kafka)))
    broker.do(SetDefaultStorage(storage_id="large"))
    broker.do(SetDefaultStorage(storage_id="default"))
    broker.do(MoveStorage(storage_id="brief", storage_type=KAFKA))
    broker.do(DeleteStorage(storage_id="brief"))
    for number in range(EVENT_TYPES):
        _event_type_commands(broker, f"size-{number}.created", number)
    _settings(broker)
    _aborted_switch(broker)
    _cleanup(broker)


def _event_type_commands(broker: Broker, name: str, number: int) -> None:
    lists = {"admins": (ALICE,), "readers": (ALICE, SHOP)}
    created = broker.do(
        CreateEventType(
            spec=event_type_spec(
                name=name,
                cleanup_policy="compact_and_delete" if number % 4 == 1 else "delete",
                partition_strategy="hash" if number % 2 else "random",
                partition_key_fields=("order_id",) if number % 2 else (),
                default_statistic=Statistic(
                    messages_per_minute=1, message_size=1, read_parallelism=1 + number % 3, write_parallelism=1
                ),
                options=Options(retention_time=172_800_000),
                authorization=EventTypeAuthorization(**lists, writers=(SHOP,)) if number % 3 == 0 else None,
                annotations={"example.org/note": "straße, 🛫"},
                labels={"team": "orders"},
                audience="company-internal" if number % 2 else None,
                event_owner_selector=EventOwnerSelector(type="path", name="team", value="order_id")
                if number % 3 == 1
                else None,
            )
        )
    )
    changed = broker.do(ChangeEventType(name=name, spec=_with(created, labels={"team": "parcels"})))
    text = changed.schema.schema.replace('"order_id":{"type":"string"}', '"order_id":{"type":"string"},"n":{}')
    broker.do(AddSchema(name=name, schema=SubmittedSchema(type="json_schema", schema=text)))
    if number % 4 == 2:
        broker.do(AddSchema(name=name, schema=avro_schema()))
        broker.registry.refresh()
        moved = broker.registry.event_type(name)
        broker.do(ChangeEventType(name=name, spec=_with(moved, annotations={"moved": "to avro"})))
    for group in ("a", "b"):
        _subscription_commands(broker, name, f"{group}-{number}", number)
    broker.do(Repartition(event_type=name, partition_count=4))
    if number % 4 != 1:
        for storage in ("fast", "default"):
            broker.timeline_switcher.switch(StartSwitch(event_type=name, storage_id=storage), broker.context())
        broker.do(CleanUpTimeline(event_type=name, order=1, now_ms=LATER_MS))
        block = DigestedBlock(0, 0, 0, 0, "00" * 32)
        broker.do(RecordDigests(event_type=name, order=2, since=(), next=(0,) * 4, blocks=(block,)))
    if number % 4 == 3:
        broker.do(SwitchFeature(feature="delete_event_type_with_subscriptions", enabled=True))
        broker.do(DeleteEventType(name=name))
        broker.do(SwitchFeature(feature="delete_event_type_with_subscriptions", enabled=False))


def _with(state: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(as_spec(state), **changes)


def _subscription_commands(broker: Broker, name: str, group: str, number: int) -> None:
    spec = subscription_spec(
        event_types=(name,),
        consumer_group=group,
        read_from="begin",
        filter='event.order_id != "1"' if number % 2 else None,
        authorization=SubscriptionAuthorization(admins=(ALICE,), readers=(ALICE, SHOP)),
    )
    created, _ = broker.do(CreateSubscription(spec=spec))
    labelled = msgspec.structs.replace(spec, labels={"team": "billing"})
    broker.do(ChangeSubscription(subscription_id=created.id, spec=labelled))
    cursor = InitialCursor(partition="0", offset="001-0001--1", event_type=name)
    previous = InitialCursor(partition="0", offset="001-0001-000000000000000007", event_type=name)
    broker.do(RecordCursorsReset(subscription_id=created.id, cursors=(cursor,), previous=(previous,)))
    wanted = DeadLetterFilter(event_type=name, partition="0") if number % 2 else DeadLetterFilter()
    broker.do(
        RecordDeadLettersRedriven(subscription_id=created.id, wanted=wanted, forced=number % 3 == 0, redriven=number)
    )
    if number % 2 == 0:
        broker.do(DeleteSubscription(subscription_id=created.id))


def _settings(broker: Broker) -> None:
    broker.do(SetAdmins(admins=Admins(admins=(ALICE,), readers=(ALICE, SHOP), writers=(SHOP,))))
    for kind in BLACKLIST_TYPES:
        broker.do(AddBlacklistEntry(type=kind, name="stups_evil"))
    broker.do(RemoveBlacklistEntry(type=BLACKLIST_TYPES[0], name="stups_evil"))
    for feature in FEATURES:
        if feature != "disable_db_write_operations":
            broker.do(SwitchFeature(feature=feature, enabled=feature != "repartitioning"))
    for feature in ("disable_event_type_creation", "disable_event_type_deletion", "event_type_deletion_only_admins"):
        broker.do(SwitchFeature(feature=feature, enabled=False))
    broker.do(AcceptLoss(findings=("events.db is missing.",), reason="restored from a backup"))
    private = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(3)]
    first, second, third = (verifier_of("rioni/1", each) for each in private)
    broker.do(AddLogKey(verifier=str(first)))
    broker.do(AddLogKey(verifier=str(second), signature=sign_successor(first, private[0], second)))
    broker.do(AddLogKey(verifier=str(third), lost=str(second)))
    heads = (ChainHead("1", 0, 0, 0, ""), ChainHead("1", 1, 2, 5, "00" * 32))
    broker.do(AnchorEventChains(storage_id="default", heads=heads))


def _aborted_switch(broker: Broker) -> None:
    """A switch to a storage that fails: it is undone, and the topic that it may have created is deleted."""
    fast = broker.stores.of("fast")
    create = fast.create_topic

    def fail(*arguments: Any) -> None:
        create(*arguments)
        raise Unavailable("no answer")

    fast.create_topic = fail  # type: ignore[method-assign]
    with contextlib.suppress(Unavailable):
        broker.timeline_switcher.switch(StartSwitch(event_type="size-0.created", storage_id="fast"), broker.context())
    fast.create_topic = create  # type: ignore[method-assign]


def _cleanup(broker: Broker) -> None:
    """Delete orphans: the topics of event types, timelines and switches that no longer exist."""
    background_jobs = broker.background_jobs()
    for _ in range(2):
        broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
        background_jobs.tick()


def _written(engine: Engine) -> Iterator[bytes]:
    with engine.connect() as connection:
        for row in connection.execute(select(LOG).order_by(LOG.c.position)).mappings():
            readable = dict(row) | {"data": bytes(row["data"]).decode(), "hash": bytes(row["hash"]).hex()}
            yield json.dumps(readable, ensure_ascii=False).encode()


def main() -> None:
    """Record the log of the present release."""
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "data") as broker:
        _record(broker)
        lines = list(_written(broker.engine))
        FOLDER.mkdir(exist_ok=True)
        path_of(__version__).write_bytes(lzma.compress(b"\n".join(lines), preset=9 | lzma.PRESET_EXTREME))
        sys.stdout.write(f"{len(lines)} entries\nhead: {json.loads(lines[-1])['hash']}\n")
        sys.stdout.write(f"read models: {digest_of_read_models(broker.engine)}\n")


if __name__ == "__main__":
    main()
