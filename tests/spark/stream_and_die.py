"""A streaming query in a separate process, which is killed, with Spark's Java process, at a given point.

Arguments: the broker's URL, the event type, a folder, and where to die: `before:N` or `after:N`, which is before or
after the rows of micro-batch N are stored; or `never`. Without a death the process ends at the end of what is there.
"""

import os
import signal
import sys
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame

from rioni.projections.bulk import spark_session
from rioni.spark import register


def main(url: str, event_type: str, folder: str, dies: str) -> None:
    table = f"{folder}/table"

    def die(at: str) -> None:
        if at == dies:
            os.killpg(0, signal.SIGKILL)

    def store(frame: DataFrame, batch: int) -> None:
        die(f"before:{batch}")
        rows = frame.select("order", "amount", "_partition", "_offset").toArrow()
        known = DeltaTable(table).transaction_version("q") if DeltaTable.is_deltatable(table) else None
        if known is None or known < batch:
            done = CommitProperties(app_transactions=[Transaction("q", batch)])
            write_deltalake(table, rows, mode="append", commit_properties=done)
        die(f"after:{batch}")

    with spark_session(Path(folder) / "spark") as spark:
        register(spark)
        stream = spark.readStream.format("rioni").options(url=url, event_type=event_type, events_per_batch=20).load()
        query = stream.writeStream.foreachBatch(store).option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
