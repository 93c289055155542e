"""Spark's standalone master with two workers, as processes of this machine."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pyspark

from tests.support.installing import install_example
from tests.support.waiting import WAIT_S, wait_until


HOST = "127.0.0.1"
PACKAGES = "packages"


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


class Standalone(NamedTuple):
    """A master and its workers."""

    url: str
    packages: Path
    """A folder that the workers have on the path of Python, with the example of the documentation."""

    @property
    def environment(self) -> dict[str, str]:
        """For a driver that has the same packages."""
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(self.packages), os.environ.get("PYTHONPATH", "")])}


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Start a master with two workers, each of one core."""
    (folder / PACKAGES).mkdir(parents=True)
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
        yield Standalone(url, folder / PACKAGES)


def _await_workers(page: str, log: Path) -> None:
    def both_are_there() -> bool:
        with contextlib.suppress(OSError), urlopen(page, timeout=WAIT_S) as answer:
            return b'"aliveworkers" : 2' in answer.read()
        return False

    wait_until(both_are_there, log.read_text)
