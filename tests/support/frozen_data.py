"""Data directories, backups, archives and exports as earlier releases wrote them, kept for ever in `tests/frozen`."""

import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import fastavro


FOLDER = Path(__file__).parents[1] / "frozen"
PLACE = "/frozen"
"""The folder in which the frozen Iceberg tables say that their files are."""


def unpack(release: str, folder: Path) -> Path:
    """Put the data of a release into a folder."""
    with tarfile.open(FOLDER / f"data-{release}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    lake = folder / "lake" / "iceberg"
    if lake.exists():
        move_iceberg(lake, PLACE, str(folder))
    return folder


def move_iceberg(lake: Path, old: str, new: str) -> None:
    """Let Iceberg tables say that their files are below another place; their metadata has whole paths."""
    for each in lake.glob("**/*.metadata.json"):
        each.write_text(each.read_text().replace(old, new))
    for each in lake.glob("**/*.avro"):
        with each.open("rb") as file:
            reader = fastavro.reader(file)
            records = [_replaced(record, old, new) for record in reader]
        schema, codec = reader.writer_schema, reader.codec
        metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
        with each.open("wb") as file:
            fastavro.writer(file, schema, records, codec=codec, metadata=metadata)
    with sqlite3.connect(lake / "catalog.db") as connection:
        for column in ("metadata_location", "previous_metadata_location"):
            connection.execute(f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)", (old, new))
    connection.close()


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case dict():
            return {name: _replaced(each, old, new) for name, each in value.items()}
        case list():
            return [_replaced(each, old, new) for each in value]
    return value
