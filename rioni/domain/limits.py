"""Limits of domain rules: those that are configured, and the fixed sizes of client-supplied definitions.

The fixed limits are far above ordinary event types, subscriptions and lists of administrators. They bound the time of
checks, the size of permanent log entries, and the length of the lists that each permission check scans.
"""

from collections.abc import Iterator, Sequence, Sized

import msgspec
from msgspec.structs import asdict


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Upper and lower bounds; `rioni.config.settings` holds the defaults."""

    retention_min_ms: int = 10_800_000
    retention_max_ms: int = 345_600_000
    retention_default_ms: int = 172_800_000
    partitions_default: int = 1
    partitions_max: int = 8
    owning_applications: str = ".*"
    """A regular expression for the names of all applications."""
    subscription_partitions_max: int = 100
    event_bytes_max: int = 999_000
    body_bytes_max: int = 50_000_000
    batch_events_max: int = 100_000
    batch_values_max: int = 2_000_000
    """Commas and opening brackets of a body: there are at most as many values, and one more.

    PERF: each value takes up to 120 bytes of memory until its batch is stored.
    """


PATHS_MAX = 100
"""Paths in one list, such as `ordering_key_fields`."""
PATH_CHARACTERS_MAX = 500
PATH_SEGMENTS_MAX = 64
"""Segments of a path: the maximum nesting depth of events."""
ATTRIBUTES_MAX = 1_000
"""Attributes in one list of an authorization section, or in one list of the broker's administrators."""
LABELS_MAX = 100
"""The maximum number of labels, and of annotations, of a resource."""
EVENT_TYPES_MAX = 5_000
"""Event types of one subscription; `subscription_partitions_max` is lower by default."""
INITIAL_CURSORS_MAX = 5_000


def size_violations(path: str, values: Sized | None, most: int) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` if there are too many values."""
    if values is not None and len(values) > most:
        yield path, f"must not contain more than {most} elements, and has {len(values)}"


def path_violations(field: str, paths: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for a list with too many dotted paths, and for each path that is too long."""
    yield from size_violations(field, paths, PATHS_MAX)
    for index, path in enumerate((paths or ())[:PATHS_MAX]):
        if len(path) > PATH_CHARACTERS_MAX:
            yield f"{field}[{index}]", f"must not have more than {PATH_CHARACTERS_MAX} characters"


def authorization_violations(section: msgspec.Struct | None) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for each list of an authorization section that is empty, or has too many attributes."""
    lists = {} if section is None else {f"authorization.{name}": each for name, each in asdict(section).items()}
    yield from ((path, "must contain at least one attribute") for path, attributes in lists.items() if not attributes)
    for path, attributes in lists.items():
        yield from size_violations(path, attributes, ATTRIBUTES_MAX)


def nul_violations(field: str, text: str | None) -> Iterator[tuple[str, str]]:
    """Yield a violation if a field with a column of its own contains U+0000, which PostgreSQL can't store."""
    if text is not None and "\0" in text:
        yield field, "must not contain the character U+0000"
