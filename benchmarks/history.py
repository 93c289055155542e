"""How long pages of the audit trail and reads of the past take in a long history.

    python -m benchmarks.history --entries 100000
    python -m benchmarks.history --entries 1000000

The history is made up by the same author as the tests' histories; its read models are written directly into SQLite.
Measured are the queries in their transactions and the JSON that is answered, without HTTP, which adds about 1 ms.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sqlalchemy import Engine, insert, select, text

from rioni.http.resources.audit import rendered
from rioni.projections.fold import EMPTY, Folded, fold
from rioni.projections.queries import audit_log, event_types, past, schemas, storages, subscriptions
from rioni.projections.queries.audit_log import AuditQuery, PageStart
from rioni.projections.queries.event_types import timelines_at
from rioni.projections.queries.past import Moment, settings_at
from rioni.projections.queries.subscriptions import SubscriptionFilter
from rioni.projections.tables import AUDIT_LOG, STATES
from rioni.storage.sql.engines import create_engine, reading, writing
from rioni.storage.sql.migration import upgrade
from tests.support.history import Author, entries


ENTRIES_PER_WRITE = 5_000
AUDIT_AIM_MS = 50


def fill(engine: Engine, count: int) -> None:
    """Write the audit log and the states that a history of this length leads to."""
    states: dict[object, Folded] = {}
    rows: dict[object, Any] = {}
    history = islice(entries(Author(Random(1), properties=8).commands()), count)
    while part := list(islice(history, ENTRIES_PER_WRITE)):
        audit = []
        for entry in part:
            states[entry.stream], changes = fold(states.get(entry.stream, EMPTY), entry)
            rows[entry.stream] = changes[0].row
            audit.append(changes[1].row)
        with writing(engine) as connection:
            connection.execute(insert(AUDIT_LOG), audit)
    with writing(engine) as connection:
        connection.execute(insert(STATES), list(rows.values()))


def timed(engine: Engine, run: Callable[[Any], Any], seconds: float) -> tuple[float, float]:
    """The median and the 99th percentile of a read, in milliseconds."""
    took = []
    ends_s = time.perf_counter() + seconds
    while len(took) < 30 or time.perf_counter() < ends_s:
        began_s = time.perf_counter()
        with reading(engine) as connection:
            run(connection)
        took.append((time.perf_counter() - began_s) * 1_000)
    took.sort()
    return took[len(took) // 2], took[int(len(took) * 0.99)]


def audit_reads(sample: Callable[[], Any]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Pages with each filter, and with several; the values are those of an entry chosen at random."""

    def read(connection: Any, *, limit: int = 20, of: Callable[[Any], dict[str, Any]], ascending: bool = False) -> None:
        page = audit_log.page(connection, AuditQuery(**of(sample())), PageStart(ascending), limit)
        rendered(page.rows, states=False)

    filters: dict[str, Callable[[Any], dict[str, Any]]] = {
        "no filter": lambda _: {},
        "resource": lambda row: {"resource": (row.resource_type, row.resource)},
        "kind (topic)": lambda row: {"topic": row.topic},
        "kind (of resource)": lambda row: {"kind": row.resource_type},
        "actor": lambda row: {"actor": row.actor},
        "flow_id": lambda row: {"flow_id": row.flow_id},
        "since": lambda row: {"since": row.recorded_at},
        "until": lambda row: {"until": row.recorded_at},
        "actor, topic, since, until": lambda row: {
            "actor": row.actor,
            "topic": row.topic,
            "since": row.recorded_at,
            "until": "2999",
        },
        "actor and kind, nothing matches": lambda _: {"actor": "rioni", "kind": "subscription", "topic": "x"},
        "two filters, nothing matches": lambda _: {"kind": "subscription", "topic": "event-type.changed"},
        "actor, nothing matches": lambda _: {"actor": "no such"},
    }
    for name, of in filters.items():
        yield name, partial(read, of=of)
    yield "no filter, 1,000 a page", partial(read, of=filters["no filter"], limit=1_000)
    yield (
        "two filters, nothing matches, oldest first",
        partial(read, of=filters["two filters, nothing matches"], ascending=True),
    )


def past_reads(sample: Callable[[], Any], head: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Each route with `as_of`, at a random position, of a resource that exists there."""
    random = Random(3)

    def of_kind(kind: str) -> Any:
        while (row := sample()).resource_type != kind or row.after is None:
            pass
        return row

    def one(connection: Any, query: Callable[..., Any], kind: str, *more: Any) -> None:
        row = of_kind(kind)
        msgspec.json.encode(query(connection, row.resource, *more, Moment(row.position)))

    def several(connection: Any, query: Callable[..., Any], *given: Any) -> None:
        msgspec.json.encode(query(connection, *given, Moment(random.randrange(1, head + 1))))

    of_all = SubscriptionFilter()
    yield "/event-types?limit=20", partial(several, query=lambda c, at: event_types.past_page(c, at, limit=20))
    yield "/event-types (all)", partial(several, query=event_types.past_page)
    yield "/event-types/{name}", partial(one, query=event_types.body_of, kind="event-type")
    yield (
        "/event-types/{name}/schemas",
        partial(one, query=lambda c, name, at: schemas.page(c, name, 0, 20, at), kind="event-type"),
    )
    yield (
        "/event-types/{name}/schemas/1.0.0",
        partial(one, query=lambda c, name, at: schemas.body_of(c, name, "1.0.0", at), kind="event-type"),
    )
    yield "/event-types/{name}/timelines", partial(one, query=timelines_at, kind="event-type")
    yield "/subscriptions", partial(several, query=lambda c, at: subscriptions.page(c, of_all, 0, 20, at))
    yield (
        "/subscriptions?token=new",
        partial(several, query=lambda c, at: subscriptions.page_by_id(c, of_all, None, 21, at)),
    )
    yield "/subscriptions/{id}", partial(one, query=subscriptions.get, kind="subscription")
    yield "/storages", partial(several, query=storages.all_storages)
    yield "/settings/*", partial(several, query=settings_at)
    yield "a time", lambda connection: audit_log.resolved(connection, of_kind("event-type").recorded_at)
    yield "a state", partial(one, query=lambda c, key, at: past.state(c, "event-type", key, at), kind="event-type")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--folder", type=Path, help="where the database goes; default: a temporary folder")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "registry.db"
        engine = create_engine(f"sqlite:///{path}")
        upgrade(engine)
        began_s = time.monotonic()
        fill(engine, options.entries)
        with reading(engine) as connection:
            kinds = connection.execute(text("SELECT kind, count(*) FROM states GROUP BY kind")).all()
        size = path.stat().st_size / 1e6
        print(f"{options.entries:,} entries, {size:,.0f} MB, written in {time.monotonic() - began_s:.0f} s; {kinds}")
        random, columns = Random(2), AUDIT_LOG.c
        with reading(engine) as connection:
            chosen = columns.position.in_([random.randrange(1, options.entries + 1) for _ in range(2_000)])
            rows = connection.execute(select(AUDIT_LOG).where(chosen)).all()
        print(f"\n| GET /audit, aim p99 <= {AUDIT_AIM_MS} ms | p50 | p99 |\n|---|---|---|")
        for name, run in audit_reads(partial(random.choice, rows)):
            print("| {} | {:.1f} ms | {:.1f} ms |".format(name, *timed(engine, run, options.seconds)), flush=True)
        aim_ms = 100 if options.entries <= 100_000 else 300
        print(f"\n| as_of, aim p99 <= {aim_ms} ms | p50 | p99 |\n|---|---|---|")
        for name, run in past_reads(partial(random.choice, rows), options.entries):
            print("| {} | {:.1f} ms | {:.1f} ms |".format(name, *timed(engine, run, options.seconds)), flush=True)
        engine.dispose()


if __name__ == "__main__":
    main()
