"""Reads definitions from files and folders: YAML and JSON, with all that is wrong in all of them."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rioni.domain.errors import Invalid
from rioni.tools.definitions.definition import Definition, Place, Problem
from rioni.tools.definitions.format import definition
from rioni.tools.definitions.yaml_text import Document, NotYaml, read


STANDARD_INPUT = "-"
YAML = (".yaml", ".yml")
SUFFIXES = (*YAML, ".json", ".jsonl")
"""Of files in folders; files that are named may have any."""
FILE_BYTES_MAX = 20_000_000


class Definitions(NamedTuple):
    """What files ask for, and what is wrong with them."""

    found: Sequence[Definition]
    problems: Sequence[Problem]


class _Read(NamedTuple):
    file: str
    documents: Sequence[Document]
    problem: Problem | None


def definitions_in(paths: Iterable[str]) -> Definitions:
    """The definitions of files, in the order of the files.

    Files that definitions name as `schema_file` are none themselves.

    Args:
        paths: of files; of folders, in which those that end with `.yaml`, `.yml`, `.json` and `.jsonl` count, at any
            depth, but none that is hidden; `-` is standard input.
    """
    files = [_read(file) for path in paths for file in _files(path)]
    schemas = {
        (Path(each.file).parent / document.value["schema_file"]).resolve()
        for each in files
        for document in each.documents
        if isinstance(document.value, dict) and isinstance(document.value.get("schema_file"), str)
    }
    found: list[Definition] = []
    problems: list[Problem] = []
    for each in files:
        if Path(each.file).resolve() in schemas:
            continue
        if each.problem is not None:
            problems.append(each.problem)
        for document in each.documents:
            asked = definition(document, each.file)
            if isinstance(asked, Definition):
                found.append(asked)
            else:
                problems += asked
    return Definitions(found, [*problems, *_repeated(found)])


def document_in(file: str) -> Document:
    """The only document of a file; `-` is standard input. Raises Invalid."""
    read_ = _read(file)
    if read_.problem is not None:
        raise Invalid(str(read_.problem))
    if len(read_.documents) != 1:
        raise Invalid(f"{file} has {len(read_.documents)} definitions instead of one.")
    return read_.documents[0]


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for found in sorted(Path(path).rglob("*")):
        hidden = any(part.startswith(".") for part in found.relative_to(path).parts)
        if found.suffix in SUFFIXES and not hidden and found.is_file():
            yield str(found)


def _read(file: str) -> _Read:
    documents: list[Document] = []
    try:
        documents.extend(parsed(_text(file), file))
    except OSError as ex:
        return _Read(file, [], Problem(Place(file, 1), "", f"can't be read: {ex.strerror}"))
    except UnicodeDecodeError:
        return _Read(file, [], Problem(Place(file, 1), "", "is not UTF-8"))
    except NotYaml as ex:
        return _Read(file, documents, Problem(Place(file, ex.line), "", ex.reason))
    except ValueError as ex:
        return _Read(file, documents, Problem(Place(file, 1), "", str(ex)))
    return _Read(file, documents, None)


def _text(file: str) -> str:
    if file == STANDARD_INPUT:
        content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with Path(file).open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"has more than {FILE_BYTES_MAX:,} bytes")
    return content.decode()


def parsed(text: str, file: str = STANDARD_INPUT) -> Iterator[Document]:
    """The documents of a text: YAML, or JSON values one after the other, or a JSON array of them.

    Args:
        text: it is JSON if it begins with a brace or bracket, and the file is not named as YAML.
        file: its name.

    Raises:
        NotYaml: it is neither; with the line.
    """
    if file.endswith(YAML) or not text.lstrip().startswith(("{", "[")):
        yield from read(text)
        return
    for document in _json_values(text):
        if isinstance(document.value, list):
            yield from (Document(each, document.line, {}) for each in document.value)
        else:
            yield document


def _json_values(text: str) -> Iterator[Document]:
    decoder = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_not_json)
    end, at, line = 0, _after_spaces(text, 0), 1
    while at < len(text):
        line += text.count("\n", end, at)
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as ex:
            raise NotYaml(f"is not JSON: {ex.msg}", ex.lineno) from ex
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


def _repeated(found: Sequence[Definition]) -> Iterator[Problem]:
    first: dict[tuple[str, ...], Definition] = {}
    for each in found:
        before = first.setdefault(each.key, each)
        if before is not each:
            yield Problem(each.place, each.name, f"is defined in {before.place}, too")
