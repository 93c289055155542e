"""Reads JSON strictly: refuses everything that RFC 8259 leaves to the reader (reference publishing#batch-format).

Duplicate keys, `NaN` and `Infinity`, integers beyond 64 bits, numbers that are no finite double, lone surrogates,
control characters in strings, trailing commas, comments, leading zeros, byte order marks: all of them are errors. This
reader is the slow one, about 5 µs for 200 bytes; `rioni.domain.publishing.batch` calls it only for bodies that look
suspicious.
"""

import json
import math
from collections.abc import Iterable
from typing import Any


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_INT64_CHARACTERS_MAX = 20


class JsonError(ValueError):
    """The text is not JSON, or not strictly so.

    Args:
        message: the problem, without the position.
        position: the index of the character at which it was noticed, None if unknown.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        self.reason = message
        self.position = position
        super().__init__(message if position is None else f"{message} at position {position}")


def decode(text: bytes | str) -> Any:
    """Read one JSON value and check that nothing follows it.

    Raises:
        JsonError: the text is anything else.
    """
    text = to_text(text)
    start = len(text) - len(text.lstrip(" \t\r\n"))
    value, end = decode_at(text, start)
    if rest := text[end:].strip(" \t\r\n"):
        raise JsonError("Unexpected characters after the value", text.index(rest, end))
    return value


def to_text(data: bytes | str) -> str:
    """Decode UTF-8.

    Raises:
        JsonError: it is not UTF-8, or has surrogates, which UTF-8 can't carry.
    """
    try:
        if isinstance(data, str):
            data.encode()
            return data
        return data.decode()
    except UnicodeError as ex:
        raise JsonError(f"Not UTF-8: {ex}") from ex


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """Read the JSON value that begins at an index.

    Returns:
        The value, and the index after it.

    Raises:
        JsonError: no JSON value stands there; its position is `len(text)` if the text ends too early.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
        if "\\u" in text[start:end]:
            _refuse_surrogates(value)
    except json.JSONDecodeError as ex:
        unterminated = ex.msg.startswith("Unterminated string")
        raise JsonError(ex.msg.removesuffix(" at"), len(text) if unterminated else ex.pos) from ex
    except RecursionError as ex:
        raise JsonError("Too many nested objects and arrays") from ex
    return value, end


def depth(value: Any) -> int:
    """How deeply objects and arrays are nested in a value: 0 for a scalar, 1 for `{}`."""
    levels = 0
    level = [value]
    while level := [node for node in level if isinstance(node, dict | list)]:
        levels += 1
        level = [child for node in level for child in children(node)]
    return levels


def children(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    """The values directly inside an object or an array."""
    return node.values() if isinstance(node, dict) else node


def _refuse_surrogates(value: Any) -> None:
    r"""Refuse half a pair such as `"\ud800"`: it is no character, so consumers could not read it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as ex:
        raise JsonError("Lone surrogate in a string") from ex


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members; raises JsonError if one occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonError(f'Duplicate key "{name[:100]}"')
            seen.add(name)
    return found


def _integer(text: str) -> int:
    if len(text) > _INT64_CHARACTERS_MAX or not INT64_MIN <= int(text) <= INT64_MAX:
        raise JsonError(f"Can not use long value '{text[:100]}' cause it is too big")
    return int(text)


def _double(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError(f"Can not use number '{text[:100]}' cause it is too big")
    return number


def _constant(name: str) -> Any:
    raise JsonError(f"Unexpected {name}")


_DECODER = json.JSONDecoder(
    object_pairs_hook=members,
    parse_int=_integer,
    parse_float=_double,
    parse_constant=_constant,
)
