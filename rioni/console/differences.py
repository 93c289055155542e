"""The differences of two texts line by line, found in bounded time whatever the texts are."""

from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate


LINES_MAX = 2_000
CONTEXT = 4
"""Unchanged lines around those that differ."""
STEPS_MAX = 1_000_000
"""PERF: this many take 0.1 s. The library's own number grows with the square of that of the lines: texts of 2,000 lines
can be made for which it takes seconds."""


def difference(before: str, after: str) -> list[dict[str, str]]:
    """Two texts line by line: a sign (`+`, `-`, a space, or `@` for a place) and the text.

    Unchanged parts are left out, and so are parts of long texts far after the first difference. If
    texts have so little in common that it takes too long to find it, the rest counts as replaced.
    """
    old, new = before.splitlines(), after.splitlines()
    longer = max(len(old), len(new))
    begin = max(0, _equal_lines(old, new) - CONTEXT) if longer > LINES_MAX else 0
    end = begin + LINES_MAX
    found = [*_lines(old[begin:end], new[begin:end], begin)]
    if found and longer > end:
        found.append({"sign": "@", "text": f"What follows after {LINES_MAX:,} lines is not compared."})
    return found


def _lines(old: Sequence[str], new: Sequence[str], left_out: int) -> Iterator[dict[str, str]]:
    for group in BoundedMatcher(old, new).get_grouped_opcodes(CONTEXT):
        _, old_begin, _, new_begin, _ = group[0]
        _, _, old_end, _, new_end = group[-1]
        places = _place(old_begin + left_out, old_end + left_out), _place(new_begin + left_out, new_end + left_out)
        yield {"sign": "@", "text": "-{} +{}".format(*places)}
        for tag, old_begin, old_end, new_begin, new_end in group:
            if tag == "equal":
                yield from ({"sign": " ", "text": line} for line in old[old_begin:old_end])
                continue
            yield from ({"sign": "-", "text": line} for line in old[old_begin:old_end])
            yield from ({"sign": "+", "text": line} for line in new[new_begin:new_end])


def _place(begin: int, end: int) -> str:
    """Lines as in a unified diff: where they begin, counted from 1, and how many they are, unless it is one."""
    count = end - begin
    if count == 1:
        return str(begin + 1)
    return f"{begin + 1 if count else begin},{count}"


class BoundedMatcher(SequenceMatcher[str]):
    """Looks for matching lines until it has made `STEPS_MAX` steps; lines not found by then count as replaced."""

    a: Sequence[str]
    b2j: dict[str, list[int]]
    """Documented by the library: the places of each line of the second text, without lines that are very frequent."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new)
        self.steps = 0
        """Steps made so far: pairs of equal lines that were compared, and lines."""
        self._until = [*accumulate((1 + len(self.b2j.get(line, ())) for line in old), initial=0)]

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Find a match as the library does, which calls this again for what is before and after each match."""
        steps = self._until[len(self.a) if ahi is None else ahi] - self._until[alo]
        if self.steps + steps > STEPS_MAX:
            return Match(alo, blo, 0)
        self.steps += steps
        return super().find_longest_match(alo, ahi, blo, bhi)


def _equal_lines(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of lines that both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (before, after) in pairs if before != after), min(len(old), len(new)))
