"""Reads files that definitions name: below the folder of the definitions only, wherever names and links lead."""

import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from rioni.cli.terminal.json_and_yaml import read
from rioni.files.plain import read_file


FILE_BYTES_MAX = 20_000_000


def schema_of_file(path: Path, root: Path | None) -> dict[str, str]:
    """Read a schema, in the form that the API takes.

    Args:
        path: of the file: JSON, YAML (`.yaml`, `.yml`), or Avro (`.avsc`).
        root: the folder in which it has to be; None if the user names the file, which may be anywhere.

    Raises:
        ValueError: there is no such schema.
    """
    try:
        text = (read_file(path) if root is None else read_bytes_below(root, path)).decode("utf-8-sig")
    except OSError as ex:
        raise ValueError(f"schema_file {path} can't be read: {ex.strerror}") from ex
    except UnicodeDecodeError as ex:
        raise ValueError(f"schema_file {path} is not UTF-8") from ex
    if path.suffix in (".yaml", ".yml"):
        documents = [each.value for each in read(text)]
        if len(documents) != 1:
            raise ValueError(f"schema_file {path} has {len(documents)} documents instead of one")
        text = json.dumps(documents[0], ensure_ascii=False)
    return {"type": "avro_schema" if path.suffix == ".avsc" else "json_schema", "schema": text}


def read_bytes_below(root: Path, path: Path) -> bytes:
    """Read a file that is in a folder, or in one below.

    Args:
        root: the folder.
        path: of the file; links and `..` may not lead out of the folder.

    Raises:
        OSError: it can't be read.
        ValueError: it is outside of the folder, is no file, or is too large.
    """
    resolved = path.resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise ValueError(f"{path} is outside of the folder {root}; name a folder that has both")
    # The path may name another file by now: a link is not followed, and a pipe not waited for.
    fd = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path} is no file")
        return bounded(file)


def bounded(file: BinaryIO) -> bytes:
    """Read all that a file has; raises ValueError if that is too much."""
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"has more than {FILE_BYTES_MAX:,} bytes")
    return content
