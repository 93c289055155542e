"""An outage of the broker, the catalog or the disk is a few lines in the log of an archive, and ends with one."""

import logging
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from rioni.client import ConnectionFailed
from rioni.config import logs as failure_log
from rioni.config.logs import EVERY_S
from rioni.domain.errors import Unavailable
from rioni.lake import archive
from rioni.lake.archive import Archive, open_lake
from rioni.lake.event_type_archive import CommitLimits
from rioni.lake.location import parse_location
from tests.support.clock import ManualClock
from tests.support.lake import create_orders, publish_orders


ROUNDS = 200
EVERY_MS = 1_000


class _Stopped:
    """Ends an archive after some rounds; what was away works again before the last two."""

    def __init__(self, clock: ManualClock) -> None:
        self.rounds, self._clock = 0, clock

    def is_set(self) -> bool:
        return self.rounds == ROUNDS

    def wait(self, _every_s: float) -> None:
        self.rounds += 1
        self._clock.advance(EVERY_MS)


@pytest.mark.parametrize("away", ["broker", "catalog"])
def test_an_outage_is_a_few_lines_and_one_at_its_end(monkeypatch, caplog, away):
    clock = ManualClock()
    monkeypatch.setattr(failure_log, "time", clock)
    stopped = _Stopped(clock)

    def fails(of: str):
        if away == of and stopped.rounds < ROUNDS - 2:
            raise Unavailable(f"The {of} does not answer.")

    class Orders:
        archived = 1

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def archive(self, *_: object) -> SimpleNamespace:
            fails("catalog")
            return SimpleNamespace(archived=1, lost=0)

    def names() -> list[str]:
        fails("broker")
        return ["orders.created", "orders.paid"]

    monkeypatch.setattr(archive, "EventTypeArchive", Orders)
    monkeypatch.setattr(archive, "marked_event_types", lambda _: names())
    with caplog.at_level(logging.WARNING, "rioni.lake"):
        Archive(MagicMock(), MagicMock(), (), MagicMock(), MagicMock()).run(1, stopped)
    *lines, last = caplog.messages
    assert lines[0].endswith(f"rchived: The {away} does not answer.")
    assert 1 <= len(lines) <= ROUNDS * EVERY_MS / 1_000 / EVERY_S + 1
    assert all(f"The {away} does not answer." in line for line in lines)
    assert last.startswith("Works again after")


def test_a_round_waits_for_a_broker_that_is_away_once():
    asked = []

    def get(name: str):
        asked.append(name)
        raise ConnectionFailed("away", sent=False)

    client, names = MagicMock(), ["orders.created", "orders.paid", "orders.sent"]
    client.event_types.get = get
    done, failed = Archive(client, MagicMock(), names, MagicMock(), MagicMock()).archive(lambda: False)
    assert (done, list(failed), len(asked)) == ({}, names, 1)


def test_events_of_a_round_that_fails_later_count(client, broker, lake, monkeypatch):
    name = create_orders(client, partition_strategy="random", default_statistic=None)
    for _ in range(4):
        publish_orders(client, name, *({"order": str(number)} for number in range(500)))
    asked, schemas = [], broker.schemas.list

    def fails(*args):
        """Fail the third time: for the third commit."""
        asked.append(args)
        if len(asked) == 3:
            raise Unavailable("away")
        return schemas(*args)

    monkeypatch.setattr(broker.schemas, "list", fails)
    opened, note = open_lake(lake.format, parse_location(lake.to), None), MagicMock()
    work = Archive(broker, opened, [name], CommitLimits(events=500), lake.metrics, note=note)
    done, failed = work.archive(lambda: False)
    assert (done, list(failed)) == ({}, [name])
    assert note.call_args.args == (f"1,000 events archived; {name} failed: away",)
    assert lake.table(name).num_rows == lake.metric("events_total", name) == 1_000
    work.archive(lambda: False)
    assert note.call_args.args == ("2,000 events archived",)
