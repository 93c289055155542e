"""An event type that has the name of a deleted one is another one: its events never get into the table of that one."""

import shutil
from pathlib import Path

import pytest

from rioni.client.ranges import RangeError
from rioni.domain.errors import Conflict
from rioni.lake.archive import Archive, open_lake
from rioni.lake.event_type_archive import CommitLimits
from rioni.lake.location import parse_location
from tests.support.lake import create_orders, publish_orders, schema_of


OLD = [{"order": f"old {n}"} for n in range(5)]


def create_again(client, name: str, events: int) -> None:
    body = client.get(f"/event-types/{name}").json()
    assert client.delete(f"/event-types/{name}").status_code == 200
    assert client.post("/event-types", json=body).status_code == 201
    # The partition follows from the order: each has as many events as the one before.
    publish_orders(client, name, *({**OLD[n % 5], "amount": n} for n in range(events)))


def archive(lake, name: str, broker) -> Archive:
    opened = open_lake(lake.format, parse_location(lake.to), None)
    return Archive(broker, opened, [name], CommitLimits(), lake.metrics, keeps_json=True)


def run(work: Archive) -> int:
    """Make one round; returns how many events were archived."""
    done, failed = work.archive(lambda: False)
    for ex in failed.values():
        raise ex
    return sum(each.archived for each in done.values())


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("again", [0, 3, 5, 8], ids=["none", "fewer events", "as many", "more"])
def test_an_archive_does_not_go_on_in_an_event_type_that_was_created_again(client, broker, lake, restarted, again):
    name = create_orders(client)
    publish_orders(client, name, *OLD)
    work = archive(lake, name, broker)
    assert run(work) == 5
    assert run(work) == 0
    create_again(client, name, again)
    if restarted:
        work = archive(lake, name, broker)
    with pytest.raises(Conflict, match=r"was deleted\. Archive to another place"):
        run(work)
    assert lake.table(name)["amount"].to_pylist() == [None] * 5


def interpose(monkeypatch, owner, name: str, create) -> None:
    """Create the event type again just before the broker is asked for something for the first time."""
    ask, left = getattr(owner, name), [True]

    def ask_after(*args, **options):
        if left:
            left.clear()
            create()
        return ask(*args, **options)

    monkeypatch.setattr(owner, name, ask_after)


@pytest.mark.parametrize("before", ["partitions", "stream", "schemas"])
@pytest.mark.parametrize("has_table", [True, False])
def test_nothing_is_committed_where_the_event_type_is_created_again_during_a_round(
    client, broker, lake, monkeypatch, before, has_table
):
    name = create_orders(client)
    publish_orders(client, name, *OLD)
    if has_table:
        run(archive(lake, name, broker))
        publish_orders(client, name, *OLD)
    owner, asked = {"partitions": (broker.partitions, "list"), "stream": (broker, "events")}.get(
        before, (broker.schemas, "list")
    )
    interpose(monkeypatch, owner, asked, lambda: create_again(client, name, 15))
    with pytest.raises(RangeError, match="was deleted and created again while it was read"):
        run(archive(lake, name, broker))
    rows = lake.table(name).to_pylist()
    assert [each["amount"] for each in rows] == [None] * (5 if has_table else 0)


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_quarantine_of_an_event_type_that_was_deleted_is_not_gone_on_with(client, broker, lake):
    """Its offsets would be taken for those of the new one."""
    name = create_orders(client, schema=schema_of({"order": {}, "amount": {}, "address": {"properties": {"a": {}}}}))
    misfit = {"order": "x", "address": "none"}
    publish_orders(client, name, *OLD, misfit)
    run(archive(lake, name, broker))
    assert lake.table(name, "quarantine").num_rows == 1
    create_again(client, name, 1)
    publish_orders(client, name, misfit)
    shutil.move(Path(lake.to) / name, Path(lake.to) / "moved")
    with pytest.raises(Conflict, match=r"The quarantine of .* was deleted"):
        run(archive(lake, name, broker))
    assert lake.table(name, "quarantine").num_rows == 1
    shutil.move(Path(lake.to) / "_quarantine" / name, Path(lake.to) / "moved too")
    assert run(archive(lake, name, broker)) == 1
    assert lake.table(name, "quarantine").num_rows == 1
