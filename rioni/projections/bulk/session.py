"""Starts and stops a local Spark session, and reports a missing Java or PySpark."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rioni.domain.errors import Conflict, Unavailable
from rioni.files.extras import requirement


try:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException, PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    from rioni.patches.pyspark import active_context, forget_gateway, gateway_of, stop_without_java
except ModuleNotFoundError as ex:
    # Every use of the package `rioni.projections.bulk` imports this module first, so this is the error that users read.
    raise Unavailable(f"This needs Spark, which is not installed. Do: pip install {requirement('spark')}") from ex


JAVA_VERSION_MIN = 17
JAVA_MODULE = "jdk.incubator.vector"
ROWS_PER_BATCH = 10_000
JAVA_END_S = 10
JAVA_GONE_S = 1
"""How long a Java process whose connections are closed may take to end."""
LOG = "spark.log"
LOG_LINES_SHOWN = 5

_SETTINGS = {
    "spark.app.name": "rioni",
    # A task whose process was killed, for want of memory for example, is repeated, as on a cluster.
    "spark.master": "local[*,4]",
    "spark.driver.memory": "2g",
    # PERF: start-up takes a third less with the quick compiler alone, and the time of a rebuild is spent in Python.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
    # On a busy machine Python may take longer than the default of 15 s to connect to Java.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    # The number of partitions is chosen by the number of log entries, which we know and Spark does not.
    "spark.sql.adaptive.enabled": "false",
}

_HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Spark settings of a session without other machines."""

CONNECT = "sc://"
DEFAULT_PORTS = {"spark": 7077, "sc": 15002}
ANSWER_S = 5.0
"""How long a server may take to accept a connection."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit`, which has started Java already."""


class SparkOptions(NamedTuple):
    """The Spark master and settings."""

    master: str = ""
    """The master, as for `spark-submit`, or `sc://host:port` of a Spark Connect server; empty for this machine."""
    settings: Mapping[str, str] = MappingProxyType({})
    """Further settings of Spark, by name."""


HERE = SparkOptions()
"""The options for this machine, with all of its cores."""


@contextmanager
def spark_session(scratch: Path, options: SparkOptions = HERE) -> Iterator[SparkSession]:
    """The running Spark session of this process, or else a new one that ends with the block, its Java process included.

    Starting one blocks for several seconds. What Java and the executors write to stderr goes to `spark.log` in the
    scratch folder: the terminal stays clean.

    Args:
        scratch: a folder for Spark's files; made if missing.
        options: the master and settings of Spark. Under `spark-submit`, its own master and settings apply.

    Raises:
        Unavailable: there is no suitable Java, or no such server; the message has advice. Or Java has ended, or Spark
            has failed, within the block.
        Conflict: the running session has another master, or another value of a setting.
    """
    with warnings.catch_warnings():
        # PySpark warns about every pandas from 3.0 on; we hand over Arrow, never pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        _check_answers(options.master)
        if active_context() is not None:
            yield _running(options)
            return
        if options.master.startswith(CONNECT) or SUBMITTED in os.environ:
            with _failures_reported(f"Spark ({options.master or 'spark-submit'})"):
                session = _join(options)
                try:
                    yield session
                finally:
                    session.stop()
            return
        # SparkContext takes the place of the caller's handler of Ctrl-C and never gives it back.
        interrupt = signal.getsignal(signal.SIGINT)
        gateway, conf = _launch(scratch, options)
        root = logging.getLogger()
        root.addFilter(_is_not_from_py4j)
        try:
            with _failures_reported("Spark", scratch / LOG):
                try:
                    yield SparkSession(SparkContext(conf=conf, gateway=gateway))
                except Exception as ex:
                    if _has_ended(gateway, ex):
                        raise Unavailable(_how_java_ended(gateway.proc.returncode, scratch / LOG)) from ex
                    raise
        finally:
            _stop(gateway)
            root.removeFilter(_is_not_from_py4j)
            if signal.getsignal(signal.SIGINT) is not interrupt:
                signal.signal(signal.SIGINT, interrupt)


def _running(options: SparkOptions) -> SparkSession:
    """The session that runs already, after checking that it matches the options."""
    session = SparkSession.builder.getOrCreate()
    wanted = {**options.settings, **({"spark.master": options.master} if options.master else {})}
    for name, value in wanted.items():
        if (found := session.conf.get(name, None)) != value:
            raise Conflict(
                f"A Spark session runs in this process already, with {name}={found}, not {value}. "
                "Stop it before, or leave this setting out."
            )
    return session


def _check_answers(master: str) -> None:
    """Check that a server accepts connections: Spark itself would try for more than a minute."""
    scheme, _, rest = master.partition("://")
    if scheme not in {"spark", "sc"}:
        return
    reasons = []
    for address in rest.partition("/")[0].split(","):
        host, colon, port = address.rpartition(":") if ":" in address else (address, "", "")
        try:
            socket.create_connection((host.strip("[]"), int(port or DEFAULT_PORTS[scheme])), ANSWER_S).close()
        except (OSError, ValueError, OverflowError) as ex:
            reasons.append(f"{host}{colon}{port}: {ex}")
        else:
            return
    raise Unavailable(f"No Spark server answers at {master} ({'; '.join(reasons)}). Is it running there? See --master.")


@contextmanager
def _failures_reported(what: str, log: Path | None = None) -> Iterator[None]:
    """Turn errors of Spark into one that names their cause, and the end of the log."""
    try:
        yield
    except (Py4JError, PySparkException) as ex:
        # The message of an error of Java is the second paragraph, before its trace.
        cause = str(ex).partition("\n: ")[2] or str(ex)
        end = "" if log is None else f" The end of {log}:\n{_end(log)}"
        raise Unavailable(f"{what} could not do its work: {cause.strip().partition(chr(10))[0]}.{end}") from ex


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Leave out errors that py4j logs as a traceback before it raises them, by the root logger."""
    return Path(record.pathname).parent.name != "py4j"


def runs_here(session: SparkSession) -> bool:
    """Whether the executors run on this machine alone."""
    return not is_remote() and str(session.sparkContext.master).startswith("local")


def cancel(session: SparkSession) -> None:
    """End all jobs of the session."""
    if is_remote():
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


def is_lost(session: SparkSession, ex: BaseException) -> bool:
    """Whether a block of `spark_session` has failed because its Java process has ended; blocks for a second at most."""
    return not is_remote() and _has_ended(gateway_of(session), ex)


def _has_ended(gateway: Any, ex: BaseException) -> bool:
    # With `spark-submit` Java has started this process.
    if not isinstance(ex, Py4JError | OSError | EOFError) or not hasattr(gateway, "proc"):
        return False
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(JAVA_GONE_S)
    return gateway.proc.poll() is not None


def _join(options: SparkOptions) -> SparkSession:
    """The session of a server of Spark Connect, or that of `spark-submit`."""
    builder = SparkSession.builder.appName("rioni")
    for name, value in options.settings.items():
        builder = builder.config(name, value)
    if not options.master.startswith(CONNECT):
        return builder.getOrCreate()
    try:
        return builder.remote(options.master).getOrCreate()
    except ImportError as ex:
        raise Unavailable(f"Spark Connect needs more packages: pip install 'pyspark[connect]' ({ex})") from ex
    except PySparkException as ex:
        raise Unavailable(f"The Spark server {options.master} can't be used: {ex}") from ex


def _launch(scratch: Path, options: SparkOptions) -> tuple[Any, SparkConf]:
    """Start Java; return the gateway to it, and the configuration of the context to be made."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(_SETTINGS.items()))
    if not options.master or options.master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        conf.setAll(list(_HERE.items()))
        conf.set("spark.local.dir", str(scratch)).set("spark.sql.warehouse.dir", str(scratch))
    if options.master:
        conf.setMaster(options.master)
    conf.setAll(list(options.settings.items()))
    log_path = scratch / LOG
    with log_path.open("wb") as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, OSError) as ex:
            raise Unavailable(_why_java_fails(log_path)) from ex
    return gateway, conf


def _stop(gateway: Any) -> None:
    """Stop Spark and wait until its Java process has ended: PySpark would keep it until this process ends."""
    if (context := active_context()) is not None:
        if gateway.proc.poll() is None:
            SparkSession.builder.getOrCreate().stop()
        else:
            stop_without_java(context)
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JAVA_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()  # waits: it has been killed
    forget_gateway()


def _how_java_ended(code: int, log: Path) -> str:
    how = f"was ended by signal {-code}" if code < 0 else f"has ended with code {code}"
    hint = " The system may have been short of memory." if code == -signal.SIGKILL else ""
    return f"Spark's Java process {how}.{hint} The end of {log}:\n{_end(log)}"


def _end(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([each for each in lines if not each.startswith("\tat ")][-LOG_LINES_SHOWN:])


def _why_java_fails(log: Path) -> str:
    """Find out what is wrong with Java; called only after a failure, so that a good start loses no time."""
    need = f"Spark needs Java {JAVA_VERSION_MIN} or newer"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return f"{need}, and there is no `java` on the PATH. Install one, or set JAVA_HOME."
    if not Path(java).exists():
        return f"{need}, and JAVA_HOME points to {home}, where there is no bin/java. Correct or unset it."
    answer = _output(java, "-version")
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    if found is not None and int(found[1]) < JAVA_VERSION_MIN:
        return f"{need}, and {java} is Java {found[1]}. Install a newer one, or set JAVA_HOME to it."
    # A Java that has the module warns that it is incubating.
    if f"{JAVA_MODULE} not found" in _output(java, "--add-modules", JAVA_MODULE, "-version"):
        return (
            f"Spark needs the module {JAVA_MODULE}, which {java} lacks: it is a stripped run-time. "
            "Install a full Java, or set JAVA_HOME to one."
        )
    return f"Java could not start Spark; the end of {log}:\n{_end(log)}"


def _output(*command: str) -> str:
    """The output of a command on both streams, whether it fails or not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as ex:
        return str(ex)
    return done.stdout + done.stderr
