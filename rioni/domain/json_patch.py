"""Computes the difference of two JSON values as a JSON patch (RFC 6902), in time linear in their size.

Members are compared one by one. Of arrays the common beginning and end is left out, and the rest is compared place by
place: the patch is correct and short for the usual changes of a list, not always the shortest one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec


DEPTH_MAX = 32
"""Deeper values are replaced as a whole."""
POINTERS_CHARACTERS_MAX = 200_000
"""Length of all pointers of a patch; a longer patch replaces the whole value. Long names above many changes would
otherwise multiply."""

Operation = Mapping[str, Any]


def escaped(name: str) -> str:
    """A name as a segment of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def unescaped(segment: str) -> str:
    """The name that a segment of a JSON pointer stands for."""
    return segment.replace("~1", "/").replace("~0", "~")


def names(pointer: str) -> list[str]:
    """The names, and numbers of items, that a JSON pointer consists of."""
    return [unescaped(segment) for segment in pointer.split("/")[1:]]


def json_patch(before: Any, after: Any) -> list[Operation]:
    """The operations `add`, `remove` and `replace` that make one JSON value of another, in order.

    Args:
        before: the value as decoded from JSON; null means a state that does not exist.
        after: the other value, in the same form.
    """
    found: list[Operation] = []
    characters = 0
    for each in _changes("", before, after, 0):
        found.append(each)
        characters += len(each["path"])
        if characters > POINTERS_CHARACTERS_MAX:
            return [_replace("", after)]
    return found


def _changes(path: str, before: Any, after: Any, depth: int) -> Iterator[Operation]:
    if _same(before, after):
        return
    if depth < DEPTH_MAX and isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(path, before, after, depth + 1)
    elif depth < DEPTH_MAX and isinstance(before, list) and isinstance(after, list):
        yield from _of_arrays(path, before, after, depth + 1)
    else:
        yield _replace(path, after)


def _of_objects(path: str, before: Mapping[str, Any], after: Mapping[str, Any], depth: int) -> Iterator[Operation]:
    for name, value in before.items():
        member = f"{path}/{escaped(name)}"
        if name in after:
            yield from _changes(member, value, after[name], depth)
        else:
            yield {"op": "remove", "path": member}
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{escaped(name)}", "value": value}


def _of_arrays(path: str, before: Sequence[Any], after: Sequence[Any], depth: int) -> Iterator[Operation]:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    common = shorter - end
    for place in range(start, common):
        yield from _changes(f"{path}/{place}", before[place], after[place], depth)
    # From the end, so that no place moves before its turn.
    for place in reversed(range(common, len(before) - end)):
        yield {"op": "remove", "path": f"{path}/{place}"}
    for place in range(common, len(after) - end):
        yield {"op": "add", "path": f"{path}/{place}", "value": after[place]}


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; for Python true also equals 1."""
    return one == other and (isinstance(one, str) or msgspec.json.encode(one) == msgspec.json.encode(other))


def _replace(path: str, value: Any) -> Operation:
    return {"op": "replace", "path": path, "value": value}
