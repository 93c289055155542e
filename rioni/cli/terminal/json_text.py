"""JSON of definitions, read so that no value changes: what Python would round or drop is an error with its line."""

import json
from collections.abc import Iterator
from typing import Any

from rioni.cli.terminal.yaml_text import Document, NotYaml, exact_number


def json_values(text: str) -> Iterator[Document]:
    """JSON values one after the other; raises NotYaml, also where a value would change."""
    decoder = json.JSONDecoder(object_pairs_hook=_members, parse_float=exact_number, parse_constant=_not_json)
    end, at, line = 0, _after_spaces(text, 0), 1
    while at < len(text):
        line += text.count("\n", end, at)
        try:
            value, end = decoder.raw_decode(text, at)
            json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError as ex:
            raise NotYaml(f"is not JSON: {ex.msg}", ex.lineno) from ex
        except UnicodeEncodeError as ex:
            raise NotYaml("is not JSON: a text has half of a surrogate pair", line) from ex
        except (ValueError, RecursionError) as ex:
            raise NotYaml(f"is not JSON: {ex}", line) from ex
        yield Document(value, line, {})
        line += text.count("\n", at, end)
        at = _after_spaces(text, end)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f'"{name}" is there twice')
        names.add(name)
    return dict(pairs)


def _not_json(constant: str) -> None:
    raise ValueError(constant)


def _after_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
