import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rioni.files.extras import requirement


pytestmark = pytest.mark.spark

START = """
import sys
from pathlib import Path
from rioni.domain.errors import RioniError
try:
    from rioni.projections.bulk import spark_session
    with spark_session(Path(sys.argv[1])) as spark:
        print(spark.range(3).count())
except RioniError as ex:
    print(ex)
"""


def start(scratch: Path, code: str = START, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start Spark in a new process, with a modified environment."""
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        [sys.executable, "-c", code, str(scratch)],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def java_home(folder: Path, script: str) -> str:
    """A JAVA_HOME whose `java` is a shell script."""
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return str(folder / "jdk")


KILLED_WHILE_A_REQUEST_WAITS = """
        java = spark.sparkContext._gateway.proc
        java.send_signal(signal.SIGSTOP)
        threading.Timer(0.2, java.kill).start()
        """
CHILDREN = "\nimport os\nprint('children:', Path(f'/proc/self/task/{os.getpid()}/children').read_text())"


def test_java_that_was_killed_is_reported_and_a_session_starts_again_works_and_ends_without_output(tmp_path):
    code = START.replace("print(", f"{KILLED_WHILE_A_REQUEST_WAITS}print(", 1)
    done = start(tmp_path, f"import signal, threading{code}{START}{CHILDREN}")
    assert "Java process was ended by signal 9. The system may have been short of memory" in done.stdout
    assert done.stdout.endswith("\n3\nchildren: \n")
    assert done.stderr == ""


def test_missing_java_is_reported(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "dirname", "sh", "env", "cat", "ls"):
        (folder / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    done = start(tmp_path, PATH=str(folder))
    assert "Java 17 or newer, and there is no `java` on the PATH" in done.stdout
    assert done.stderr == ""


def test_a_wrong_java_home_is_reported(tmp_path):
    assert "JAVA_HOME points to /nowhere" in start(tmp_path, JAVA_HOME="/nowhere").stdout


def test_an_old_java_is_reported(tmp_path):
    home = java_home(tmp_path, "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2; exit 1")
    assert f"{home}/bin/java is Java 11" in start(tmp_path, JAVA_HOME=home).stdout


def test_a_stripped_java_is_reported(tmp_path):
    script = """case "$*" in -version) echo 'openjdk version "17.0.1"' >&2;;
    *) echo 'Error occurred during initialization of boot layer' >&2
       echo 'java.lang.module.FindException: Module jdk.incubator.vector not found' >&2; exit 1;; esac"""
    assert "lacks: it is a stripped run-time" in start(tmp_path, JAVA_HOME=java_home(tmp_path, script)).stdout


def test_any_other_failure_shows_the_output_of_java(tmp_path):
    script = (
        """case "$*" in *-version) echo 'openjdk version "21.0.1"' >&2;; *) echo 'out of luck' >&2; exit 1;; esac"""
    )
    assert "out of luck" in start(tmp_path, JAVA_HOME=java_home(tmp_path, script)).stdout


@pytest.mark.parametrize("module", ["rebuild", "audit"])
def test_a_missing_extra_is_reported(module, tmp_path):
    code = f"""
import sys
sys.modules["pyspark"] = None
from rioni.domain.errors import Unavailable
try:
    import rioni.projections.bulk.{module}
except Unavailable as ex:
    print(ex)
"""
    assert f"pip install {requirement('spark')}" in start(tmp_path, code).stdout


def test_executors_import_neither_the_http_server_nor_sqlalchemy():
    code = """
import sys
import rioni.projections.bulk.executors
print([name for name in ("sqlalchemy", "falcon", "gevent", "eventsourcing") if name in sys.modules])
"""
    assert start(Path(), code).stdout == "[]\n"


@pytest.mark.parametrize(
    ("master", "settings", "told"),
    [
        ("spark://127.0.0.1:1", {}, "No Spark server answers at spark://127.0.0.1:1 (127.0.0.1:1: "),
        ("spark://127.0.0.1:1,[::1]:1", {}, "::1]:1: "),
        ("sc://127.0.0.1:1/;token=x", {}, "No Spark server answers at sc://127.0.0.1:1"),
        ("spark://127.0.0.1:port", {}, "No Spark server answers at spark://127.0.0.1:port"),
        ("nonsense://127.0.0.1", {}, "Master must either be yarn or start with spark, k8s, or local"),
        ("", {"spark.driver.memory": "1"}, "Java could not start Spark"),
        ("", {"spark.executor.memory": "much"}, "Executor memory must be a positive number"),
    ],
)
def test_a_spark_that_can_not_start_is_reported(tmp_path, master, settings, told):
    """One error, which `rioni` shows without a traceback, with exit code 2."""
    code = START.replace("Path(sys.argv[1])", f"Path(sys.argv[1]), SparkOptions({master!r}, {settings!r})").replace(
        "import spark_session", "import spark_session\n    from rioni.projections.bulk.session import SparkOptions"
    )
    done = start(tmp_path, code)
    assert told in done.stdout
    assert "Traceback" not in done.stderr


def test_a_job_that_fails_is_reported(tmp_path):
    code = START.replace("print(spark.range(3).count())", "spark.sql('SELECT raise_error(\"bad luck\")').collect()")
    done = start(tmp_path, code)
    assert "Spark could not do its work: " in done.stdout
    assert "bad luck" in done.stdout
    assert done.stderr == ""
