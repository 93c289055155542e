"""Texts for people: the nearest known name, the first texts of a list, and text that is safe for terminals."""

import re
from collections.abc import Iterable, Sequence


# --- Proposes the nearest of the known names for an unknown one: the rule of all errors that ask "did you mean" ---

EDITS_MAX = 2
"""How many letters of a name that is proposed may be missing, too many, wrong or swapped."""
SHORT = 6
"""In a part with fewer letters than this, only one letter may differ."""
PART_MISSING = EDITS_MAX + 1
UNLIKE = EDITS_MAX + 2

_PART = re.compile(r"[^\W_]+")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another one; None if none is like it.

    Names are compared part by part: an equal part does not make up for one that differs, so that
    `orders.cancelled` is not like `orders.created`. Case and separators make no difference. PERF: it takes
    some microseconds for each known name.
    """
    wanted, least, found = _parts(name), UNLIKE, None
    for each in known:
        if (cost := _cost(wanted, _parts(each))) < least:
            least, found = cost, each
    return found


def proposal(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence about a name that is not known: the question for the nearest one, or `otherwise`."""
    found = nearest(name, known)
    return otherwise if found is None else f"; did you mean {found}?"


def first_of(texts: Sequence[str], most: int) -> str:
    """The first texts of a list, and the number of the others: `a, b, and 3 more`."""
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return ", ".join([*texts[:most], *more])


def _parts(name: str) -> list[str]:
    return _PART.findall(name.casefold())


def _cost(one: Sequence[str], other: Sequence[str]) -> int:
    """How unlike two names are, from 0 to `UNLIKE`."""
    if not one or not other:
        return UNLIKE
    # Separators may be missing, or be too many.
    pairs = zip(one, other, strict=True) if len(one) == len(other) else [("".join(one), "".join(other))]
    cost = 0
    for a, b in pairs:
        if a != b and (cost := cost + _edits(a, b)) > EDITS_MAX:
            return PART_MISSING if _is_without_a_part(*sorted((one, other), key=len)) else UNLIKE
    return cost


def _is_without_a_part(shorter: Sequence[str], longer: Sequence[str]) -> bool:
    """Whether the first or the last part of the longer name is missing, and the others have twice its letters."""
    missing = longer[-1] if longer[:-1] == shorter else longer[0] if longer[1:] == shorter else None
    return missing is not None and 2 * len(missing) < len("".join(shorter))


def _edits(one: str, other: str) -> int:
    """The number of letters in which two parts differ; `UNLIKE` if they are too many."""
    longest = max(len(one), len(other))
    most = min(EDITS_MAX if longest >= SHORT else 1, longest - 1)
    # PERF: spares most pairs the search; each edit takes one letter away from a side at most.
    if abs(len(one) - len(other)) > most or len(set(one) - set(other)) > most or len(set(other) - set(one)) > most:
        return UNLIKE
    found = _distance(one, other, most)
    return found if found <= most else UNLIKE


def _distance(one: str, other: str, most: int) -> int:
    """The least number of edits that make one text the other; more than `most` if it is more."""
    differing = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    start = next(differing, min(len(one), len(other)))
    one, other = one[start:], other[start:]
    if not one or not other:
        return len(one or other)
    if most == 0:
        return 1
    ways = [(one[1:], other[1:]), (one[1:], other), (one, other[1:])]
    if one[:2] == other[1::-1]:
        ways.append((one[2:], other[2:]))
    return 1 + min(_distance(*way, most - 1) for way in ways)


# Makes texts from outside safe for terminals: characters that control, hide or reorder others become escapes.

_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Letters and marks that show nothing, which Python counts as printable."""
_SUSPICIOUS = re.compile(f"[{_INVISIBLE}]")
_ESCAPES = {ord(char): ascii(char)[1:-1] for char in _INVISIBLE}


def visible(text: str) -> str:
    r"""A text of several lines in which nothing controls a terminal: `\x9b`, `\u202e` and the like are shown instead.

    Line breaks and tabs stay. All other characters of the Unicode categories Cc, Cf, Cs, Co, Cn, Zl and Zp are escaped,
    and so are spaces but the usual one, and letters that show nothing.
    """
    if _is_visible(text):
        return text
    return "\n".join("\t".join(map(_escaped, line.split("\t"))) for line in text.split("\n"))


def visible_line(text: str) -> str:
    r"""Like `visible`, for a part of a line: line breaks and tabs become `\n` and `\t`, too."""
    return text if _is_visible(text) else _escaped(text)


def visible_json(text: str) -> str:
    r"""JSON with the same value, in which nothing controls a terminal: such characters are `\u` escapes.

    Args:
        text: JSON; such characters are inside of strings only.
    """
    if _is_visible(text):
        return text
    return "".join(char if char in "\n\t" or _is_visible(char) else _json_escape(char) for char in text)


def ascii_json(text: str) -> str:
    r"""JSON with the same value, in ASCII: all other characters are `\u` escapes."""
    return "".join(char if char.isascii() else _json_escape(char) for char in text)


def _is_visible(text: str) -> bool:
    return text.isprintable() and not _SUSPICIOUS.search(text)


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(ord(char), char) if char.isprintable() else ascii(char)[1:-1] for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
