"""Makes texts from outside safe for terminals: characters that control, hide or reorder others become escapes."""

import re


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
