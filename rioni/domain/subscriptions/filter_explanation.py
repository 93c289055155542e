"""Why an event matches a filter, or does not: the value of each part of the expression."""

from collections.abc import Iterator, Sequence

from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.event_filter import EventFilter, Outcome, checked_filter
from rioni.domain.subscriptions.filter_reading import tokens


PARTS_MAX = 10
"""Of an expression with more parts the rest is one."""
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


def parts(expression: str) -> Sequence[str]:
    """What `||` joins at the top of an expression, or else what `&&` joins; the expression itself if nothing does."""
    for operator in ("||", "&&"):
        found = [*_split(expression, operator)]
        if len(found) > 1:
            return found
    return [expression.strip()]


class ExplainedFilter:
    """A filter and its parts, compiled once and not shared: a compiled filter serves one thread at a time.

    Args:
        expression: as of an `EventFilter`.

    Raises:
        Invalid: it is not a filter.
    """

    def __init__(self, expression: str) -> None:
        checked_filter(expression)
        self._filter = EventFilter(expression)
        self._parts = [(part, _compiled(part)) for part in parts(expression)]

    def outcome(self, event: bytes) -> Outcome:
        """Whether an event, given as JSON, is wanted; raises FilterTooSlow."""
        return self._filter.outcome(event)

    def explain(self, event: bytes) -> list[tuple[str, Outcome | None]]:
        """The parts of the expression with what they say of an event; None for what is no filter by itself."""
        return [(part, None if compiled is None else compiled.outcome(event)) for part, compiled in self._parts]


def _compiled(part: str) -> EventFilter | None:
    try:
        return EventFilter(part)
    except Invalid:
        return None


def _split(expression: str, operator: str) -> Iterator[str]:
    depth, piece, count = 0, "", 1
    for token in tokens(expression, spaces=True):
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and token.text == operator and count < PARTS_MAX:
            yield piece.strip()
            piece, count = "", count + 1
        else:
            piece += token.text
    yield piece.strip()
