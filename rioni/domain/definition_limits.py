"""Size limits of client-supplied definitions: event types, subscriptions, lists of administrators.

Each member has a limit that no honest definition comes near to. They bound the time that checks take, the size of what
the log keeps for ever, and what every request has to look through that asks for a right.
"""

from collections.abc import Iterator, Mapping, Sequence, Sized


PATHS_MAX = 100
"""Paths in one list, such as `ordering_key_fields`."""
PATH_CHARACTERS_MAX = 500
PATH_SEGMENTS_MAX = 64
"""As deep as events may be nested."""
ATTRIBUTES_MAX = 1_000
"""Attributes in one list of an authorization section, and administrators of the broker in one of theirs."""
LABELS_MAX = 100
"""Labels, and annotations as well."""
EVENT_TYPES_MAX = 5_000
"""Event types of one subscription; `subscription_partitions_max` is the lower limit, unless it is raised."""
INITIAL_CURSORS_MAX = 5_000


def size_violations(path: str, values: Sized | None, most: int) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` where there are more values than may be."""
    if values is not None and len(values) > most:
        yield path, f"must not contain more than {most} elements, and has {len(values)}"


def path_violations(field: str, paths: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for a list of too many dotted paths, and for each path that is too long."""
    yield from size_violations(field, paths, PATHS_MAX)
    for index, path in enumerate((paths or ())[:PATHS_MAX]):
        if len(path) > PATH_CHARACTERS_MAX:
            yield f"{field}[{index}]", f"must not have more than {PATH_CHARACTERS_MAX} characters"


def authorization_violations(lists: Mapping[str, Sized]) -> Iterator[tuple[str, str]]:
    """Yield `(path, message)` for every list of an authorization section that has too many attributes."""
    for name, attributes in lists.items():
        yield from size_violations(f"authorization.{name}", attributes, ATTRIBUTES_MAX)
