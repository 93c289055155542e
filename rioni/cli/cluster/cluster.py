"""A whole cluster on this machine: Kafka brokers, ZooKeeper servers, and one PostgreSQL; fetches the jars they need."""

import contextlib
import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from rioni.cli.cluster.postgres import running_postgres
from rioni.cli.cluster.servers import HOST, Door, Server, free_ports, kafka, new_cluster_id, zookeeper
from rioni.config.settings import SETTINGS
from rioni.domain.errors import Unavailable


class LocalCluster:
    """Running servers; single ones may be paused, killed and started again."""

    def __init__(
        self,
        kafkas: list[Server],
        zookeepers: list[Server],
        bootstrap_servers: str,
        hosts: str,
        database: str,
        signing_key: str = "",
    ) -> None:
        self.kafkas, self.zookeepers = kafkas, zookeepers
        self.kafka = bootstrap_servers
        """The Kafka brokers, as `RIONI_KAFKA` takes them: `host:port,host:port`."""
        self.zookeeper = hosts
        """The ZooKeeper servers, as `RIONI_ZOOKEEPER` takes them."""
        self.database = database
        """The PostgreSQL database, as `RIONI_DATABASE` takes it; empty if none was asked for."""
        self.signing_key = signing_key
        """The key that signs the log, as `RIONI_LOG_SIGNING_KEY` takes it; the first node makes it."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a broker a node of this cluster."""
        values = {
            "database": self.database,
            "kafka": self.kafka,
            "log_signing_key": self.signing_key,
            "zookeeper": self.zookeeper,
        }
        return {SETTINGS[name].variable: value for name, value in values.items()}


class Detours(NamedTuple):
    """Proxied ports of the brokers, so that a proxy can hold back traffic."""

    advertised: Sequence[Sequence[int]]
    """The advertised ports of each door of each broker; door n is listener `DOORn`."""
    settings: Sequence[Mapping[str, object]]
    """The settings of each broker that override its defaults."""
    lead: Callable[[Sequence[Sequence[int]]], None]
    """Called with the ports of the same doors before a broker starts: leads clients there from where they come."""


@contextlib.contextmanager
def running_cluster(
    *,
    brokers: int = 1,
    zookeepers: int = 0,
    postgres: bool = True,
    detours: Detours | None = None,
    progress: Callable[[str], None] = lambda _text: None,
) -> Iterator[LocalCluster]:
    """Start a cluster in a scratch folder; it ends with the block, and so does the folder.

    Args:
        brokers: of Kafka; with three and more every topic has three copies.
        zookeepers: how many.
        postgres: whether there is a PostgreSQL too.
        detours: other ways to the brokers than directly.
        progress: called with a text for each step.

    Raises:
        Unavailable: Java, Maven or PostgreSQL is missing, or a server does not start; the text says why.
    """
    if not jars_are_fetched():
        progress("fetching the servers (once)")
    class_path = fetch_jars()
    detours = detours or Detours([()] * brokers, [{}] * brokers, lambda _ports: None)
    # All at once, so that they differ.
    ports = iter(free_ports(2 * brokers + 3 * zookeepers + sum(map(len, detours.advertised))))
    kafka_ports = {n: (next(ports), next(ports)) for n in range(1, brokers + 1)}
    zookeeper_ports = {n: (next(ports), next(ports), next(ports)) for n in range(1, zookeepers + 1)}
    doors = [[Door(next(ports), advertised) for advertised in each] for each in detours.advertised]
    detours.lead([[door.port for door in each] for each in doors])
    cluster_id = new_cluster_id()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rioni-cluster-")))
        keepers = [zookeeper(class_path, folder / f"zookeeper-{n}", n, zookeeper_ports) for n in zookeeper_ports]
        kafkas = [
            kafka(class_path, folder / f"kafka-{n}", n, kafka_ports, cluster_id, further, each)
            for n, further, each in zip(kafka_ports, detours.settings, doors, strict=True)
        ]
        database = stack.enter_context(running_postgres()).get_uri(driver="psycopg") if postgres else ""
        for server in (*keepers, *kafkas):
            progress(f"starting {server.name}")
            # No data is kept, so there is no need for an orderly end.
            stack.callback(server.kill)
            server.start()
        for server in (*keepers, *kafkas):
            server.wait()  # waits: it has been killed
        yield LocalCluster(
            kafkas,
            keepers,
            ",".join(f"{HOST}:{client}" for client, _ in kafka_ports.values()),
            ",".join(f"{HOST}:{client}" for client, *_ in zookeeper_ports.values()),
            database,
            str(folder / "log-signing.key"),
        )


# --- Starts nodes of Rioni itself with the servers that they share, each as a process of its own ---

READY_TIMEOUT_S = 5


def node(folder: Path, number: int, port: int, environment: Mapping[str, str]) -> Server:
    """A node with one worker, which keeps its port when it is started again.

    Args:
        folder: empty, or from an earlier run.
        number: of this node.
        port: where it listens.
        environment: names the servers that it shares with others, and other settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--host", HOST, "--port", str(port), "--data", str(folder / "data"), "--workers", "1"]
    command = [sys.executable, "-m", "rioni", "serve", *options]
    return Server(f"Node {number}", command, folder, lambda: _is_ready(port), environment)


def _is_ready(port: int) -> bool:
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=READY_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


# --- Fetches jars with Maven, the servers' by default, once for each version of the list ---


POM = Path(__file__).with_name("pom.xml")
FETCH_TIMEOUT_S = 600


def missing_programs(pom: Path = POM) -> str:
    """Return a sentence that asks to install the missing programs that the jars need; empty if nothing is missing."""
    wanted = ("java",) if jars_are_fetched(pom) else ("java", "mvn")
    lacking = [name for name in wanted if shutil.which(name) is None]
    needs = {"java": "Java 17 or newer", "mvn": "Maven"}
    return f"This needs {' and '.join(needs[name] for name in lacking)} on the path." if lacking else ""


def jars_are_fetched(pom: Path = POM) -> bool:
    """Whether an earlier run has left the jars here."""
    return _jars_folder(pom).is_dir()


def fetch_jars(pom: Path = POM) -> str:
    """The class path with all that the file lists; blocks while Maven downloads, which it does once.

    Raises:
        Unavailable: Java or Maven is missing, or Maven can't fetch the jars.
    """
    if reason := missing_programs(pom):
        raise Unavailable(reason)
    folder = _jars_folder(pom)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _download(pom, Path(scratch) / "jars")
            # Renamed when complete, so that interrupted or concurrent runs leave no incomplete folder.
            if not folder.is_dir():
                (Path(scratch) / "jars").rename(folder)
    return f"{folder}/*"


def _jars_folder(pom: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rioni"
    return cache / f"jars-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"


def _download(pom: Path, folder: Path) -> None:
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime")
    command = ["mvn", "--quiet", "--batch-mode", f"--file={pom}", *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as ex:
        raise Unavailable(f"Maven did not fetch the jars within {FETCH_TIMEOUT_S} s") from ex
    if done.returncode:
        raise Unavailable(f"Maven could not fetch the jars:\n{done.stdout}{done.stderr}")
