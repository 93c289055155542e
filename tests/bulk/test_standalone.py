"""Spark's standalone master with two workers builds the same as this process, byte by byte."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pyspark
import pytest

from tests.bulk.test_rebuild import contents, history


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

HOST = "127.0.0.1"
START_S = 60


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[None]:
    """One of Spark's servers."""
    home = Path(pyspark.__path__[0])
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/jars/*", *arguments, "--host", HOST]
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": HOST}
    with (
        (folder / "server.log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Iterator[str]:
    """The URL of a master with two workers, each of one core."""
    folder = tmp_path_factory.mktemp("standalone")
    with socket.socket() as one, socket.socket() as other:
        ports = []
        for each in (one, other):
            each.bind((HOST, 0))
            ports.append(each.getsockname()[1])
    url, page = f"spark://{HOST}:{ports[0]}", f"http://{HOST}:{ports[1]}/json/"
    package = "org.apache.spark.deploy"
    with ExitStack() as servers:
        master = (f"{package}.master.Master", "--port", str(ports[0]), "--webui-port", str(ports[1]))
        servers.enter_context(running(*master, folder=folder))
        for number in range(2):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), "--webui-port", "0")
            servers.enter_context(running(f"{package}.worker.Worker", *work, url, folder=folder))
        _await_workers(page, folder / "server.log")
        yield url


def _await_workers(page: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urlopen(page, timeout=5) as answer:
                if b'"aliveworkers" : 2' in answer.read():
                    return
        except URLError:
            pass
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def test_two_workers_build_what_the_live_projection_has_written(master, url, engine, write, tmp_path):
    write(history(500))
    live = contents(engine)
    command = [sys.executable, "-m", "tests.bulk.rebuild_process", url, str(tmp_path / "scratch"), "--master", master]
    done = subprocess.run(
        [*command, "--entries-per-task", "60"], capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert contents(engine) == live
