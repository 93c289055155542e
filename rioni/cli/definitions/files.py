"""Reads definitions from files and folders: YAML and JSON, with all that is wrong in all of them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rioni.cli.definitions.definition import (
    Definition,
    DefinitionError,
    SourceLocation,
    bounded,
    definition,
    read_bytes_below,
)
from rioni.cli.terminal.json_and_yaml import Document, NotYaml, json_values, read
from rioni.domain.errors import Invalid


STANDARD_INPUT = "-"
YAML = (".yaml", ".yml")
JSON = (".json", ".jsonl")
SUFFIXES = (*YAML, *JSON)
"""The suffixes of files that are read from folders; files that are named may have any."""


class Definitions(NamedTuple):
    """The definitions in files, and the problems found in them."""

    found: Sequence[Definition]
    problems: Sequence[DefinitionError]


class _Read(NamedTuple):
    file: str
    root: Path
    """The folder in which this file and those that it names have to be."""
    documents: Sequence[Document]
    problem: DefinitionError | None


def definitions_in(paths: Iterable[str]) -> Definitions:
    """The definitions of files, in the order of the files.

    Files that definitions name as `schema_file` are none themselves. They have to be in the folder that was named, or
    in the folder of a file that was named; a link that leads out of it is a problem.

    Args:
        paths: of files; of folders, in which those that end with `.yaml`, `.yml`, `.json` and `.jsonl` count, at any
            depth, but none that is hidden; `-` is standard input.
    """
    files = [each for path in paths for each in _read_all(path)]
    schemas = {
        (Path(each.file).parent / document.value["schema_file"]).resolve()
        for each in files
        for document in each.documents
        if isinstance(document.value, dict) and isinstance(document.value.get("schema_file"), str)
    }
    found: list[Definition] = []
    problems: list[DefinitionError] = []
    for each in files:
        if Path(each.file).resolve() in schemas:
            continue
        if each.problem is not None:
            problems.append(each.problem)
        for document in each.documents:
            asked = definition(document, each.file, root=each.root)
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


def _read_all(path: str) -> Iterator[_Read]:
    folder = Path(path)
    if not folder.is_dir():
        yield _read(path)
        return
    for found in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in found.relative_to(path).parts)
        if found.suffix in SUFFIXES and not hidden and found.is_file():
            yield _read(str(found), folder)


def _read(file: str, folder: Path | None = None) -> _Read:
    """Read a file that was found in a folder, or that the user names."""
    root = folder or Path(file).parent
    documents: list[Document] = []
    try:
        documents.extend(parsed(_text(file, folder), file))
    except OSError as ex:
        return _Read(file, root, [], DefinitionError(SourceLocation(file, 1), "", f"can't be read: {ex.strerror}"))
    except UnicodeDecodeError as ex:
        line = ex.object.count(b"\n", 0, ex.start) + 1
        return _Read(file, root, [], DefinitionError(SourceLocation(file, line), "", "is not UTF-8"))
    except NotYaml as ex:
        return _Read(file, root, documents, DefinitionError(SourceLocation(file, ex.line), "", ex.reason))
    except ValueError as ex:
        return _Read(file, root, documents, DefinitionError(SourceLocation(file, 1), "", str(ex)))
    return _Read(file, root, documents, None)


def _text(file: str, folder: Path | None) -> str:
    if file == STANDARD_INPUT:
        content = bounded(sys.stdin.buffer)
    elif folder is not None:
        content = read_bytes_below(folder, Path(file))
    else:
        # The user names this file, which may be a pipe, or a link to anywhere.
        with Path(file).open("rb") as opened:
            content = bounded(opened)
    return content.decode("utf-8-sig")


def parsed(text: str, file: str = STANDARD_INPUT) -> Iterator[Document]:
    """The documents of a text: YAML, or JSON values one after the other, or a JSON array of them.

    Args:
        text: it is JSON if the file is named so, or if it begins with a brace or bracket and the file is not named as
            YAML.
        file: its name.

    Raises:
        NotYaml: it is neither; with the line.
    """
    if file.endswith(YAML) or not (file.endswith(JSON) or text.lstrip().startswith(("{", "["))):
        yield from read(text)
        return
    for document in json_values(text):
        if isinstance(document.value, list):
            yield from (Document(each, document.line) for each in document.value)
        else:
            yield document


def _repeated(found: Sequence[Definition]) -> Iterator[DefinitionError]:
    first: dict[tuple[str, ...], Definition] = {}
    for each in found:
        before = first.setdefault(each.key, each)
        if before is not each:
            yield DefinitionError(each.place, each.name, f"is defined in {before.place}, too")
