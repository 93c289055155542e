"""Compares the read models with the log, row by row in both directions, while the broker may be running.

Each page is read in a separate transaction, in which log and read models show the same position. A stream is compared
in the transaction that found no further entry of it. Memory is bounded by a page and the longest stream.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, TableClause, and_, bindparam, column, func, select, table, tuple_

from rioni.projections.fold import FOLD_VERSION
from rioni.projections.log_rows import LOG_COLUMNS, CorruptLog, Row, StreamFold, log_entry
from rioni.projections.tables import READ_MODELS, TRACKING_NAME
from rioni.sql.log_tables import HEAD, LOG, TRACKING
from rioni.sql.tracking import Begin


ENTRIES_PER_READ = 500
"""The number of entries read at once, with their rows of the audit log, each of which may have 512 kB."""

EXTRA_MAX = 1_000
"""Rows that belong to nothing in the log: how many are named for each table."""

_KINDS = {
    "event_types": "event-type",
    "schemas": "event-type",
    "timelines": "timeline",
    "subscriptions": "subscription",
    "subscription_event_types": "subscription",
    "storages": "storage",
}
"""The kind of aggregate whose key begins the primary key of a table."""

_KEYS = {each.name: tuple(each.primary_key.columns.keys()) for each in READ_MODELS.sorted_tables}


def _untyped(name: str, names: Collection[str]) -> TableClause:
    """Return a table whose values are read unconverted, even if they have wrong types."""
    return table(name, *(column(each) for each in names))


_LOG = _untyped(LOG.name, LOG.columns.keys())
_LIVE = {each.name: _untyped(each.name, each.columns.keys()) for each in READ_MODELS.sorted_tables}
_AUDIT = _LIVE["audit_log"]
_STATES = _LIVE["states"]
_SHOWN = select(func.coalesce(func.max(TRACKING.c.position), 0)).where(TRACKING.c.name == TRACKING_NAME)
_PAGE = (
    select(*(each for each in _LOG.c if each.name != "hash"), *(each.label(f"audit_{each.name}") for each in _AUDIT.c))
    .outerjoin(_AUDIT, _AUDIT.c.position == _LOG.c.position)
    .where(tuple_(_LOG.c.stream, _LOG.c.version) > tuple_(bindparam("stream"), bindparam("version")))
    .where(_LOG.c.position <= _SHOWN.scalar_subquery())
    .order_by(_LOG.c.stream, _LOG.c.version)
    .limit(ENTRIES_PER_READ)
)
_UNDER_KEYS = {
    name: select(live).where(live.c[_KEYS[name][0]].in_(bindparam("keys", expanding=True)))
    for name, live in _LIVE.items()
}


class Difference(NamedTuple):
    """A row of the live read models that differs from the log."""

    table: str
    key: tuple[Any, ...]
    """The row's primary key."""
    kind: str
    """The kind of difference: `missing`, `changed`, `extra`, or `unknown` if the log can't be folded."""
    resource: str = ""
    """The resource that the row describes, as `<kind>:<key>`; empty if unknown."""
    position: int | None = None
    """The last entry of the log that the row follows from, if known."""
    live: Mapping[str, Any] = {}
    """The columns of the live row that differ, all of them if it is extra; none if the rows were only compared."""
    rebuilt: Mapping[str, Any] = {}
    """These columns rebuilt from the log; all of them if the row is missing."""


def compare(begin: Begin, progress: Callable[[int, int], None]) -> Iterator[Difference]:
    """Yield all differences; blocks on the database in short transactions.

    What is written meanwhile is compared, or left for the next time.

    Args:
        begin: begins a transaction that reads one state of the database.
        progress: called with the number of entries folded and their total.

    Raises:
        Unavailable: the database can't be read.
    """
    with begin() as connection:
        fold, shown = connection.execute(
            select(func.max(TRACKING.c.fold), func.max(TRACKING.c.position)).where(TRACKING.c.name == TRACKING_NAME)
        ).one()
        end = connection.scalar(select(HEAD.c.position)) or 0
    if end != (shown or 0) or fold not in {None, FOLD_VERSION}:
        yield Difference("tracking", (TRACKING_NAME,), "changed", "", shown)
    if fold not in {None, FOLD_VERSION}:
        return
    yield from _compare_streams(begin, end, progress)
    for name, live in _LIVE.items():
        with begin() as connection:
            extra = list(_extra(connection, name, live))
        yield from extra


class _Stream:
    """A stream that is being folded."""

    def __init__(self, stream: str) -> None:
        self.id = stream
        self.fold = StreamFold()
        self.kind = self.key = ""
        self.position = 0
        self.failed = False

    @property
    def resource(self) -> str:
        return f"{self.kind}:{self.key}" if self.kind else ""

    def add(self, row: Row) -> Iterator[Difference]:
        """Fold an entry, and compare its row of the audit log."""
        if self.failed:
            return
        self.position = row["position"]
        try:
            entry = log_entry([row[name] for name in LOG_COLUMNS])
            audited = self.fold.add(entry)
        except (CorruptLog, ValueError, TypeError, AttributeError, LookupError):
            self.failed = True
            yield Difference("states", (self.id,), "unknown", self.resource, self.position)
            return
        self.kind, self.key = entry.event.kind, entry.event.key
        for expected in audited:
            live = {name: row[f"audit_{name}"] for name in _AUDIT.c.keys()}  # noqa: SIM118 - not a dict
            if live != expected:
                kind = "missing" if live["position"] is None else "changed"
                yield Difference("audit_log", (self.position,), kind, self.resource, self.position)


def _compare_streams(begin: Begin, end: int, progress: Callable[[int, int], None]) -> Iterator[Difference]:
    stream: _Stream | None = None
    after: dict[str, Any] = {"stream": "", "version": 0}
    done, full = 0, True
    while full:
        finished: list[_Stream] = []
        found: list[Difference] = []
        with begin() as connection:
            rows = [dict(row) for row in connection.execute(_PAGE, after).mappings()]
            full = len(rows) == ENTRIES_PER_READ
            for row in rows:
                if stream is None or row["stream"] != stream.id:
                    finished += [stream] if stream else []
                    stream = _Stream(row["stream"])
                found += stream.add(row)
            if not full and stream:
                finished.append(stream)
            found += _compare_rows(connection, [each for each in finished if not each.failed])
        yield from found
        if rows:
            after = {"stream": rows[-1]["stream"], "version": rows[-1]["version"]}
        done += len(rows)
        progress(min(done, end), end)


def _compare_rows(connection: Connection, streams: Sequence[_Stream]) -> Iterator[Difference]:
    """Compare the rows of streams without further entries, in the transaction that has shown so."""
    expected: dict[str, dict[tuple[Any, ...], tuple[Row, _Stream]]] = {name: {} for name in _KEYS}
    for stream in streams:
        for name, row in stream.fold.rows():
            expected[name][tuple(row[key] for key in _KEYS[name])] = row, stream
    by_key = {(each.kind, each.key): each for each in streams} | {("", each.id): each for each in streams}
    for name, query in _UNDER_KEYS.items():
        if name == _AUDIT.name:
            continue
        kind = _KINDS.get(name, "")
        keys = [key for each, key in by_key if each == kind]
        if not keys:
            continue
        live = {
            tuple(row[key] for key in _KEYS[name]): row for row in connection.execute(query, {"keys": keys}).mappings()
        }
        for key in live.keys() - expected[name].keys():
            owner = by_key[kind, key[0]]
            yield Difference(name, key, "extra", owner.resource, owner.position)
        for key, (row, owner) in expected[name].items():
            if key not in live:
                yield Difference(name, key, "missing", owner.resource, owner.position)
            elif dict(live[key]) != row:
                yield Difference(name, key, "changed", owner.resource, owner.position)


def _extra(connection: Connection, name: str, live: TableClause) -> Iterator[Difference]:
    """Find rows whose resource does not occur in the log at all."""
    if name == _AUDIT.name:
        origin = select(_LOG.c.position).where(_LOG.c.position == live.c.position)
    elif name == _STATES.name:
        origin = select(_LOG.c.position).where(_LOG.c.stream == live.c.stream)
    else:
        first = live.c[_KEYS[name][0]]
        origin = select(_STATES.c.stream).where(and_(_STATES.c.kind == _KINDS[name], _STATES.c.key == first))
    keys = [live.c[key] for key in _KEYS[name]]
    for row in connection.execute(select(*keys).where(~origin.exists()).limit(EXTRA_MAX)):
        yield Difference(name, tuple(row), "extra", _named(name, row))


def _named(name: str, key: Sequence[Any]) -> str:
    kind: Mapping[str, str] = _KINDS
    return f"{kind[name]}:{key[0]}" if name in kind else ""
