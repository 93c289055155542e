"""Which embedded files `rioni verify` compares with what this release makes; see `rioni.storage.embedded.structure`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from rioni.config.settings import Config
from rioni.storage.embedded.coordination.database import CoordinationDatabase
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.structure import page_findings, table_findings, type_findings
from rioni.storage.sql.migration import NEW_SQLITE


def structure_checks(config: Config) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """Yield for each check the name of a file, and a function that returns a sentence for each finding."""
    if not config.database:
        registry = config.data / "registry.db"
        yield registry.name, partial(page_findings, registry)
        yield registry.name, partial(table_findings, registry, NEW_SQLITE.read_text(encoding="utf-8"))
    if (path := config.data / "coordination.db").is_file():
        yield path.name, partial(page_findings, path)
        yield path.name, partial(table_findings, path, *_made(CoordinationDatabase))
        yield path.name, partial(type_findings, path, CoordinationDatabase.schema)
    for path in sorted(config.data.glob("events*.db")):
        # Its pages are checked with its events.
        yield path.name, partial(table_findings, path, *_made(EventsDatabase))
        yield path.name, partial(type_findings, path, EventsDatabase.schema)


def _made(database: type[CoordinationDatabase | EventsDatabase]) -> tuple[str, int]:
    return database.schema, database.schema_version
