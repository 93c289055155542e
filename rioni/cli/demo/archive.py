"""The demo's archive: the flights as a Delta table, and a query in SQL whose result is known."""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from rioni.domain.errors import RioniError, Unavailable
from rioni.files.extras import requirement


QUERY = "SELECT origin, count(*) AS flights FROM flights GROUP BY origin ORDER BY origin"


class WrongArchive(RioniError):
    """The archive does not have what was published."""


def archive_and_query(console: Console, url: str, event_type: str, flights: Sequence[dict[str, Any]]) -> None:
    """Archive an event type into a temporary folder, and compare the flights of each airport with those published.

    Args:
        console: where to report.
        url: of the broker.
        event_type: of the flights.
        flights: what was published.

    Raises:
        Unavailable: the archive fails, or its libraries are missing.
        WrongArchive: the result is another one.
    """
    try:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder
    except ModuleNotFoundError as ex:
        raise Unavailable(f"The demo needs {ex.name}: pip install {requirement('demo')}") from ex
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rioni-lake-") as folder:
        command = [
            sys.executable,
            "-m",
            "rioni",
            "archive",
            "--url",
            url,
            "--to",
            folder,
            "--format",
            "delta",
            "--once",
        ]
        environment = dict(os.environ) | {"RIONI_LOG_LEVEL": "warning"}
        done = subprocess.run(
            [*command, "--event-type", event_type], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            raise Unavailable(f"The archive has failed: {done.stderr}")
        seconds = time.monotonic() - begin
        table = DeltaTable(f"{folder}/{event_type}")
        rows = QueryBuilder().register("flights", table).execute(QUERY).read_all()
    found = {row["origin"]: row["flights"] for row in pa.table(rows).to_pylist()}
    if found != Counter(str(flight["origin"]) for flight in flights):
        raise WrongArchive(f"The archive has {found} flights, which is not what was published.")
    console.print(f"Archived {len(flights):,} events as a Delta table in {seconds:.1f} s; {QUERY}:")
    for origin, count in found.items():
        console.print(f"  {origin} {count:>8,}", highlight=False)
