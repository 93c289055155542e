"""Offsets of cursors: which one comes first, and what may be committed inside a batch.

Offsets have a meaning for the broker alone. Those of the form that this API writes, `001-<timeline>-<position>`, are
compared and counted; nothing is done with others, so that the client works with every server.
"""

import re


_WRITTEN = re.compile(r"(001-[0-9a-f]{4}-)(-1|[0-9]{18})")
"""The canonical form; such offsets of one partition compare as strings."""


def again(seen: str | None, count: int, end: str) -> bool:
    """Whether some events are known to be delivered again.

    Each event has a position of its own, and positions grow.

    Args:
        seen: the last offset that was delivered before, None if there is none.
        count: of the events.
        end: the offset of the last one.
    """
    if seen is None or seen == end:
        return seen is not None
    first, last = _WRITTEN.fullmatch(seen), _WRITTEN.fullmatch(end)
    if not first or not last:
        return False
    return seen > end or (first[1] == last[1] and int(last[2]) < int(first[2]) + count)


def inside(before: str | None, count: int, end: str) -> str | None:
    """An offset that is not after the first `count` events of a batch, as near to them as can be determined.

    The n-th event after a position is n positions further, or more where others were removed or hidden.

    Args:
        before: the offset before the batch, None if it is unknown.
        count: of the first events of the batch.
        end: the offset of its last event.

    Returns:
        None if it can't be determined.
    """
    first, last = _WRITTEN.fullmatch(before or ""), _WRITTEN.fullmatch(end)
    if not first or not last or first[1] != last[1]:
        return None
    position = int(first[2]) + count
    return f"{first[1]}{position:018d}" if 0 <= position <= int(last[2]) else None


def of_event(before: str | None, index: int, count: int, end: str) -> str | None:
    """The offset of an event of a batch.

    Args:
        before: the offset before the batch, None if it is unknown.
        index: of the event in the batch.
        count: of the events of the batch.
        end: the offset of the last one.

    Returns:
        None if it can't be determined, as others may have been removed or hidden between.
    """
    if index == count - 1:
        return end
    return inside(before, index + 1, end) if inside(before, count, end) == end else None


def passed(committed: str, count: int, end: str) -> int:
    """The number of the first events of a batch that are known to be committed: never more than are.

    Args:
        committed: the offset that is committed.
        count: of the events.
        end: the offset of the last one.
    """
    if committed == end:
        return count
    first, last = _WRITTEN.fullmatch(committed), _WRITTEN.fullmatch(end)
    if not first or not last:
        return 0
    if committed > end:
        return count
    if first[1] != last[1]:
        return 0
    # At most as many events follow the offset as there are positions.
    return max(count - (int(last[2]) - int(first[2])), 0)
