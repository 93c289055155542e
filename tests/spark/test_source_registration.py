"""The documented ways to start a program: by a Python that is not activated, and by `spark-submit`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lake import create_orders, publish_orders


PROGRAM = """
import sys
from pyspark.sql import SparkSession
from rioni.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
orders = spark.read.format("rioni").option("url", sys.argv[1]).option("event_type", sys.argv[2]).load()
print("read", orders.count())
orders.write.format("rioni").option("url", sys.argv[1]).option("event_type", sys.argv[3]).mode("append").save()
"""
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def others(tmp_path):
    """An environment whose `python3` does not have this package."""
    bad = tmp_path / "bin" / "python3"
    bad.parent.mkdir()
    bad.write_text("#!/bin/sh\necho 'the wrong Python' >&2\nexit 1\n")
    bad.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "VIRTUAL_ENV"))}
    path = [str(bad.parent), *(each for each in os.environ["PATH"].split(os.pathsep) if Path(each) != BIN)]
    # PERF: most of Java's time would go into compiling what runs a few times.
    java = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return environment | java | {"PATH": os.pathsep.join(path), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.parametrize("submits", [False, True], ids=["python", "spark-submit"])
def test_workers_run_a_python_that_has_the_package(others, server, client, tmp_path, submits):
    source, target = create_orders(client), create_orders(client)
    publish_orders(client, source, {"order": "a", "amount": 1})
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [str(BIN / "spark-submit")] if submits else [sys.executable]
    environment = others | {"PYSPARK_PYTHON": sys.executable} if submits else others
    done = subprocess.run(
        [*command, str(tmp_path / "program.py"), server.url, source, target],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "read 1" in done.stdout, done.stderr[-3_000:]
    assert done.returncode == 0, done.stderr[-3_000:]
