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
from sqlalchemy import Engine, select

from rioni.projections.custom_tables import live_tables
from tests.bulk.conftest import write_all
from tests.bulk.test_rebuild import history
from tests.support.installing import example_found_in, install_example


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

HOST = "127.0.0.1"
PACKAGES = "packages"
START_S = 60


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[None]:
    """One of Spark's servers, with the example of the documentation on the path of its Python processes."""
    home = Path(pyspark.__path__[0])
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/jars/*", *arguments, "--host", HOST]
    places = os.pathsep.join([str(folder / PACKAGES), os.environ.get("PYTHONPATH", "")])
    settings = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": HOST, "PYTHONPATH": places}
    environment = os.environ | settings
    with (
        (folder / "server.log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The URL of a master with two workers, each of one core, and a folder with packages that these have."""
    folder = tmp_path_factory.mktemp("standalone")
    (folder / PACKAGES).mkdir()
    install_example(folder / PACKAGES)
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
        yield url, folder / PACKAGES


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


def test_two_workers_build_what_the_live_projection_has_written(master, url, engine, tmp_path):
    address, packages = master
    with example_found_in(packages):
        write_all(engine, list(history(500)))
        live = everything(engine)
        assert live["custom_owners"]
    command = [sys.executable, "-m", "tests.bulk.rebuild_process", url, str(tmp_path / "scratch"), "--master", address]
    places = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--entries-per-task", "60"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=os.environ | {"PYTHONPATH": places},
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with example_found_in(packages):
        assert everything(engine) == live


def everything(engine: Engine) -> dict[str, list[tuple]]:
    """All live tables, in the order of their keys."""
    with engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for name, table in live_tables().items()
        }
