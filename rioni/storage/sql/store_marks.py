"""Reads and writes the marks of the stores in the registry's database; see `rioni.domain.system.anchors`."""

import json
from collections.abc import Collection, Iterable, Mapping
from uuid import uuid4

from sqlalchemy import Connection, Engine, bindparam, delete, insert, select, update

from rioni.domain.hash_chain import LogHead
from rioni.domain.system.anchors import INSTALLATION, Marks
from rioni.sql.log_tables import HEAD, LOG, MARKS
from rioni.storage.sql.engines import reading, writing


LOOKED_UP_MAX = 1_000
"""Maximum number of marks looked up with one statement."""


def topic_mark(topic: str) -> str:
    """Return the key of a topic's mark: the next position of every partition."""
    return f"topic:{topic}"


def accepted_mark(topic: str) -> str:
    """Return the key of the mark with the end of a Kafka topic whose loss an operator accepted."""
    return f"accepted:{topic}"


def cluster_mark(storage_id: str) -> str:
    """Return the key of the mark with the id of a storage's Kafka cluster."""
    return f"kafka:{storage_id}"


ZOOKEEPER = "zookeeper"
"""Key of the mark of the ZooKeeper path: its sequence number, a list of one."""


def ends_text(ends: Iterable[int]) -> str:
    """Encode the value of a numeric mark as JSON."""
    return json.dumps(list(ends))


def ends_of(mark: str) -> list[int]:
    """Decode the value of a numeric mark."""
    return [int(each) for each in json.loads(mark)]


def installation_id(engine: Engine) -> str:
    """Return the installation id, created and recorded at the first call; blocks.

    Raises:
        Unavailable: the database can't be used.
    """
    with reading(engine) as connection:
        found = read_marks(connection).get(INSTALLATION)
    if found is not None:
        return found
    with writing(engine) as connection:
        # Another process may have been faster.
        connection.execute(select(HEAD.c.position).with_for_update())
        found = read_marks(connection).get(INSTALLATION)
        if found is None:
            found = str(uuid4())
            connection.execute(insert(MARKS).values(name=INSTALLATION, value=found))
        return found


def read_marks(connection: Connection) -> dict[str, str]:
    """Return all marks by key."""
    return {row.name: row.value for row in connection.execute(select(MARKS.c.name, MARKS.c.value))}


def zookeeper_mark(engine: Engine) -> int | None:
    """Return the minimum sequence number of the ZooKeeper path; None if none was recorded. Blocks.

    Raises:
        Unavailable: the database can't be used.
    """
    with reading(engine) as connection:
        mark = read_marks(connection).get(ZOOKEEPER)
    return None if mark is None else ends_of(mark)[0]


def write_marks(engine: Engine, marks: Marks, removed: Collection[str] = ()) -> None:
    """Store marks and delete others; blocks.

    Raises:
        Unavailable: the database can't be used.
    """
    with writing(engine) as connection:
        for name, value in marks.items():
            if not connection.execute(update(MARKS).where(MARKS.c.name == name).values(value=value)).rowcount:
                connection.execute(insert(MARKS).values(name=name, value=value))
        for name in removed:
            connection.execute(delete(MARKS).where(MARKS.c.name == name))


def raise_marks(engine: Engine, numbers: Mapping[str, Mapping[int, int]], ids: Marks) -> list[str]:
    """Raise numeric marks, never lowering them, and store ids that have not been recorded yet; blocks.

    Args:
        engine: the engine of a database that has an installation id.
        numbers: for each numeric mark its minimum numbers, by index.
        ids: other marks by key.

    Returns:
        The keys of ids recorded with another value, which are unchanged.

    Raises:
        Unavailable: the database can't be used; nothing was changed.
    """
    with writing(engine) as connection:
        # All processes raise the same marks, so they take turns.
        connection.execute(select(MARKS.c.value).where(MARKS.c.name == INSTALLATION).with_for_update())
        known: dict[str, str] = {}
        names = [*numbers, *ids]
        for first in range(0, len(names), LOOKED_UP_MAX):
            some = MARKS.c.name.in_(names[first : first + LOOKED_UP_MAX])
            rows = connection.execute(select(MARKS.c.name, MARKS.c.value).where(some))
            known |= {row.name: row.value for row in rows}
        wanted = {name: _raised(known.get(name, "[]"), each) for name, each in numbers.items()}
        wanted |= {name: known.get(name, value) for name, value in ids.items()}
        new = [{"name": name, "value": value} for name, value in wanted.items() if name not in known]
        raised = [{"changed": name, "to": value} for name, value in wanted.items() if known.get(name, value) != value]
        if new:
            connection.execute(insert(MARKS), new)
        if raised:
            change = update(MARKS).where(MARKS.c.name == bindparam("changed")).values(value=bindparam("to"))
            connection.execute(change, raised)
    return [name for name, value in ids.items() if wanted[name] != value]


def _raised(mark: str, numbers: Mapping[int, int]) -> str:
    known = dict(enumerate(ends_of(mark)))
    count = max([*known, *numbers], default=-1) + 1
    return ends_text(max(known.get(index, 0), numbers.get(index, 0)) for index in range(count))


def entry_hash(connection: Connection, position: int) -> bytes | None:
    """Return the hash of a log entry; None if the entry does not exist."""
    return connection.scalar(select(LOG.c.hash).where(LOG.c.position == position))


def read_head(connection: Connection) -> LogHead:
    """Return the head of the log."""
    position, last = connection.execute(select(HEAD.c.position, HEAD.c.hash)).one()
    return LogHead(position, last)
