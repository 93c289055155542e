"""Publishes a table in a separate process, which is killed, with Spark's Java process, while it does so.

Arguments: the broker's URL, the event type, a folder with the table in Parquet, `batch` or `stream`, and how many
events are stored when the process is to die; 0 for never.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import httpx

from rioni.projections.bulk import spark_session
from rioni.spark import register
from tests.support.server import count_events
from tests.support.waiting import WAIT_S, wait_until


def main(url: str, event_type: str, folder: str, kind: str, stored: str) -> None:
    options = {"url": url, "event_type": event_type, "job": f"job-{event_type}", "events_per_request": "2"}

    def die() -> None:
        with httpx.Client(base_url=url, timeout=WAIT_S) as client:
            wait_until(lambda: count_events(client, event_type) >= int(stored))
        os.killpg(0, signal.SIGKILL)

    if int(stored):
        threading.Thread(target=die, daemon=True).start()
    with spark_session(Path(folder) / "spark") as spark:
        register(spark)
        rows = spark.read.parquet(f"{folder}/rows")
        if kind == "batch":
            rows.write.format("rioni").options(**options).mode("append").save()
            return
        stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/rows")
        writer = stream.writeStream.format("rioni").options(**options).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
