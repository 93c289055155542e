"""Two archives of one event type never double an event: one of them fails at its commit."""

import re
import shutil
from datetime import date
from pathlib import Path

import pytest

from rioni.client.ranges import Locator
from rioni.domain.errors import Conflict, RioniError
from rioni.lake.archive import open_lake
from rioni.lake.event_tables import EventTables
from rioni.lake.location import parse_location
from rioni.lake.reader import LakeReader, event_type
from rioni.lake.table import EVENTS, WriterConflict
from tests.support.lake import PROPERTIES, ArchiveUnderTest, change_schema, create_orders, publish_orders, stored


def opened(broker, lake, name):
    """The tables of an event type as another process opens them, and the events after them that it has read."""
    found = event_type(broker, name)
    tables = EventTables(open_lake(lake.format, parse_location(lake.to), None), broker, found, keeps_json=True)
    partitions = Locator(broker, name).bounds()
    starts = {each: tables.places.get(each, bounds.before_oldest) for each, bounds in partitions.items()}
    behind = {each: starts[each] for each, bounds in partitions.items() if starts[each] < bounds.newest}
    reader = LakeReader(broker, found, {each: bounds.newest for each, bounds in partitions.items()})
    return tables, reader.read(behind, lambda _: False, lambda: False)


@pytest.mark.parametrize("made", [True, False], ids=["the table is there", "the table is new"])
def test_of_two_archives_one_fails_at_its_commit(client, broker, lake, made):
    name = create_orders(client)
    if made:
        publish_orders(client, name, {"order": "before"})
        lake.archive(name)
    publish_orders(client, name, {"order": "a"}, {"order": "b"})
    first, read = opened(broker, lake, name)
    second, read_again = opened(broker, lake, name)
    first.commit(read)
    change_schema(client, name, PROPERTIES | {"note": {"type": "string"}})
    with pytest.raises(WriterConflict, match="nothing was written"):
        second.commit(read_again)
    assert lake.archived(name) == stored(client, name)
    publish_orders(client, name, {"order": "c", "note": "later"})
    assert lake.archive(name)[name].archived == 1
    assert lake.archived(name) == stored(client, name)


def test_an_event_type_that_was_created_anew_does_not_go_on_in_the_table_of_the_one_before(client, lake):
    name = create_orders(client)
    publish_orders(client, name, {"order": "a"})
    lake.archive(name)
    body = client.get(f"/event-types/{name}").json()
    client.delete(f"/event-types/{name}")
    assert client.post("/event-types", json=body).status_code == 201
    with pytest.raises(Conflict, match="was deleted"):
        lake.archive(name)


@pytest.mark.parametrize("how", ["copied", "moved", "linked"])
def test_a_lake_at_another_place_goes_on_there_or_not_at_all(client, lake, tmp_path, how):
    name = create_orders(client)
    publish_orders(client, name, {"order": "a"})
    lake.archive(name)
    publish_orders(client, name, {"order": "b"})
    first, other = Path(lake.to), tmp_path / "other"
    {"copied": shutil.copytree, "moved": shutil.move, "linked": lambda old, new: new.symlink_to(old)}[how](first, other)
    before = files_of(first)
    there = ArchiveUnderTest(url=lake.url, to=str(other), format_=lake.format)
    if lake.format == "iceberg" and how != "linked":
        # Its metadata has whole paths.
        with pytest.raises(RioniError, match=re.escape(str(first))):
            there.archive(name)
    else:
        there.archive(name)
        assert there.archived(name) == stored(client, name)
    assert how == "linked" or files_of(first) == before


def files_of(folder):
    return {each for each in folder.rglob("*") if each.is_file()}


def test_expired_days_are_removed_from_the_lake_alone(client, lake):
    name = create_orders(client)
    publish_orders(client, name, {"order": "a"})
    lake.archive(name)
    day = date.fromisoformat(str(lake.table(name)["event_day"][0]))
    table = open_lake(lake.format, parse_location(lake.to), None).open(EVENTS, name)
    table.expire(day)
    assert lake.table(name).num_rows == 1
    table.expire(day.replace(year=day.year + 1))
    assert lake.table(name).num_rows == 0
    publish_orders(client, name, {"order": "b"})
    assert lake.archive(name)[name].archived == 1
    assert len(stored(client, name)) == 2
