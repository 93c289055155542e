"""Why an event matches a filter, or does not: the value of each part of the expression."""

from collections.abc import Iterator, Sequence

from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.event_filter import event_filter, tokens


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


def explain(expression: str, event: bytes) -> list[tuple[str, bool | None]]:
    """The parts of an expression with their values for an event; None for what has no value by itself.

    Args:
        expression: a filter that is accepted.
        event: its JSON.
    """
    return [(part, _value(part, event)) for part in parts(expression)]


def _value(part: str, event: bytes) -> bool | None:
    try:
        return event_filter(part).matches(event)
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
