"""Starts, pauses and kills servers as separate processes, each in a folder, all on the loopback address."""

import contextlib
import ctypes
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from uuid import uuid4

from rioni.domain.errors import Unavailable
from rioni.files.locks import try_lock


HOST = "127.0.0.1"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10
PREPARED_TIMEOUT_S = 4 * START_TIMEOUT_S
"""Preparing Kafka formats a folder, starts a broker and ends it, each within `START_TIMEOUT_S`."""
LOOK_EVERY_S = 0.05
LOG_CHARACTERS = 2_000

_PR_SET_PDEATHSIG = 1
_PORTS = range(15_000, 32_000)
"""Below all that Linux (from 32,768) and others (from 49,152) give to outgoing connections."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment, and that no outgoing connection takes meanwhile."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        # Tests seed `random`, so that processes would choose the same ones at the same time.
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(ports) == count:
                break
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server((HOST, port)))
                ports.append(port)
    return ports


class Server:
    """One server process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a server; `start` starts it.

        Args:
            name: for messages.
            command: starts it in the foreground.
            folder: where it writes, and where its output goes; exists.
            ready: whether it answers.
            environment: variables in addition to those of this process.
        """
        self.name, self.folder = name, folder
        self._command, self._ready, self._environment = command, ready, environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs, or is paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, which ends with the one that has started it; `wait` waits until it answers."""
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - it only makes a system call
            )

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the server answers.

        Raises:
            Unavailable: it has ended, or does not answer in time; the text has the end of its output.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ready():
            if not self.alive or time.monotonic() > deadline:
                output = (self.folder / "output.txt").read_text(errors="replace")[-LOG_CHARACTERS:]
                raise Unavailable(f"{self.name} did not start:\n{output}")
            time.sleep(LOOK_EVERY_S)

    def pause(self) -> None:
        """Pause the process, to simulate an unreachable machine; return when all of its threads have stopped.

        Raises:
            Unavailable: it runs on after `STOP_TIMEOUT_S`.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        # On a busy machine the threads run on for a while after the signal.
        while self.alive and not self._stopped():
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name} did not stop")
            time.sleep(LOOK_EVERY_S)

    def resume(self) -> None:
        """Resume a paused process."""
        self._signal(signal.SIGCONT)

    def end(self, timeout_s: float) -> None:
        """Ask the process to end, and wait until it has.

        Raises:
            subprocess.TimeoutExpired: it has not in time.
        """
        self._signal(signal.SIGTERM)
        if self._process is not None:
            self._process.wait(timeout_s)

    def kill(self) -> None:
        """End the process without any chance to tidy up."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()  # waits: it has been killed

    def _stopped(self) -> bool:
        assert self._process is not None
        return os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal(self, number: int) -> None:
        if self.alive:
            assert self._process is not None
            os.killpg(self._process.pid, number)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# --- ZooKeeper ---


def zookeeper(class_path: str, folder: Path, number: int, ports: Mapping[int, tuple[int, int, int]]) -> Server:
    """A server of an ensemble.

    Args:
        class_path: with ZooKeeper's jars.
        folder: empty, or from an earlier run.
        number: of this server.
        ports: for each server of the ensemble the ports for clients, for its followers and for elections.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client_port = ports[number][0]
    settings = {
        "dataDir": folder / "data",
        "clientPortAddress": HOST,
        "clientPort": client_port,
        "tickTime": 500,
        "initLimit": 20,
        "syncLimit": 4,
        "minSessionTimeout": 1_000,
        # All of its clients come from one address.
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
    }
    if len(ports) > 1:
        settings |= {f"server.{n}": f"{HOST}:{peer}:{election}" for n, (_, peer, election) in ports.items()}
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "myid").write_text(f"{number}\n")
    _write(folder / "zoo.cfg", settings)
    command = [*_java(class_path, 128), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]
    return Server(f"ZooKeeper {number}", command, folder, lambda: b"Mode:" in _ask(client_port, b"srvr"))


def _ask(port: int, question: bytes) -> bytes:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(question)
            return connection.recv(4_096)
    except OSError:
        return b""


# --- Kafka ---


class Door(NamedTuple):
    """A further port of a broker. A client that connects to it learns only of the ports that belong to it."""

    port: int
    advertised: int
    """The advertised port; a proxy forwards it to `port`."""


def kafka(
    class_path: str,
    folder: Path,
    number: int,
    ports: Mapping[int, tuple[int, int]],
    cluster_id: str,
    further: Mapping[str, object] = MappingProxyType({}),
    doors: Sequence[Door] = (),
) -> Server:
    """A broker that is a controller too (KRaft).

    Args:
        class_path: with Kafka's jars.
        folder: empty, or from an earlier run.
        number: of this broker.
        ports: for each broker of the cluster the ports for clients and for controllers.
        cluster_id: the same for all brokers.
        further: settings of the broker, which override its defaults.
        doors: where it listens in addition to the port for clients.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client_port, controller_port = ports[number]
    copies = min(3, len(ports))
    listeners = {"CLIENT": client_port, "CONTROLLER": controller_port} | {
        f"DOOR{n}": door.port for n, door in enumerate(doors)
    }
    advertised = listeners | {f"DOOR{n}": door.advertised for n, door in enumerate(doors)}
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{controller}" for n, (_, controller) in ports.items()),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in advertised.items()),
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "log.dirs": folder / "data",
        "default.replication.factor": copies,
        "min.insync.replicas": max(1, copies - 1),
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": max(1, copies - 1),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.check.interval.ms": 1_000,
        "log.cleaner.dedupe.buffer.size": 4 * 2**20,
        "log.cleaner.threads": 1,
        "log.cleaner.backoff.ms": 200,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 1_000,
        # A broker that nobody uses takes less CPU.
        "metadata.max.idle.interval.ms": 10_000,
    }
    _write(folder / "server.properties", {**settings, **further})
    prepared = _prepared(class_path)
    if not (folder / "data" / "meta.properties").exists():
        (folder / "data").mkdir(exist_ok=True)
        shutil.copy(prepared / FEATURES, folder / "data")
        _write(folder / "data" / "meta.properties", {"version": 1, "cluster.id": cluster_id, "node.id": number})
    command = _kafka_command(class_path, folder, f"-XX:SharedArchiveFile={prepared / CLASSES}")
    return Server(f"Kafka {number}", command, folder, lambda: _listens(client_port))


def new_cluster_id() -> str:
    """An id for a Kafka cluster."""
    return uuid4().hex[:22]


FEATURES, CLASSES = "bootstrap.checkpoint", "classes.jsa"


def _prepared(class_path: str) -> Path:
    """The folder of what spares brokers half of the work of a start; a first start leaves it, once for each Java.

    It has the features of a new cluster (`FEATURES`), and the classes that a broker loads, as this Java maps them into
    memory (`CLASSES`). Blocks while another process makes it.

    Raises:
        Unavailable: the first start fails, or another process does not end its own in time.
    """
    java = Path(_java_command()).resolve()
    known_by = f"{java} {java.stat().st_mtime_ns}"
    jars = Path(class_path).parent
    folder = jars / f"prepared-{hashlib.sha256(known_by.encode()).hexdigest()[:12]}"
    with (jars / "lock").open("ab") as lock:
        # One process does it, others wait for it.
        deadline = time.monotonic() + PREPARED_TIMEOUT_S
        while not try_lock(lock.fileno()):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"another process has not prepared Kafka in {PREPARED_TIMEOUT_S} s; it locks {lock.name}"
                )
            time.sleep(LOOK_EVERY_S)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=jars) as scratch:
                _start_first(class_path, Path(scratch))
                Path(scratch, "prepared").rename(folder)
    return folder


def _start_first(class_path: str, folder: Path) -> None:
    """Format the folder of a broker, start it and end it in good order; `prepared` is the state that it leaves."""
    (prepared := folder / "prepared").mkdir()
    client_port, controller_port = free_ports(2)
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{client_port},CONTROLLER://{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
    }
    _write(folder / "server.properties", settings)
    command = [*_java(class_path, 128), "kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c"]
    properties = str(folder / "server.properties")
    done = subprocess.run([*command, properties], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    if done.returncode:
        raise Unavailable(f"Kafka's folder could not be prepared:\n{done.stdout}{done.stderr}")
    shutil.copy(folder / "data" / FEATURES, prepared)
    command = _kafka_command(class_path, folder, f"-XX:ArchiveClassesAtExit={prepared / CLASSES}")
    server = Server("Kafka", command, folder, lambda: _listens(client_port))
    server.start()
    try:
        server.wait(START_TIMEOUT_S)
        server.end(START_TIMEOUT_S)
    finally:
        server.kill()


def _kafka_command(class_path: str, folder: Path, *options: str) -> list[str]:
    return [*_java(class_path, 256, *options), "kafka.Kafka", str(folder / "server.properties")]


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


# --- ZooKeeper and Kafka ---


def _java_command() -> str:
    java = shutil.which("java")
    assert java is not None, "looked for before"
    return java


def _java(class_path: str, heap_mb: int, *options: str) -> list[str]:
    # Small machines, short lives: a small heap, the plain collector, and no second compiler.
    machine = [f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options]
    return [_java_command(), *machine, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]


def _write(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
