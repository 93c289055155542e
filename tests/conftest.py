from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog.dev import ConsoleRenderer, plain_traceback

from rioni.cli.cluster.cluster import LocalCluster, missing_programs, running_cluster
from rioni.config.logs import forget_failures
from tests.support import spark_daemon
from tests.support.campaigns import NIGHTLY
from tests.support.certificates import Authority
from tests.support.modes import SETTINGS
from tests.support.nodes import RunningNodes, running_nodes
from tests.support.postgres import drop_database, fresh_database
from tests.support.scheduling import Scheduling, group_of, import_in_turns, slow_first
from tests.support.scratch import move_to_memory
from tests.support.shared_servers import SharedServers, address_of


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


TESTS = Path(__file__).parent
# `dev` is not in the wheel. The wheel comes first.
sys.path.append(str(TESTS.parent))

# A shared machine may be slow at times; no test promises a speed.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _COMMON, max_examples=50)
settings.register_profile("ci", _COMMON, max_examples=25, derandomize=True, print_blob=True)
settings.register_profile("fast", _COMMON, max_examples=5, derandomize=True)
settings.register_profile("nightly", _COMMON, max_examples=2_000, stateful_step_count=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# PERF: by default Rich colours each traceback that is logged, with a second of work.
structlog.configure([*structlog.get_config()["processors"][:-1], ConsoleRenderer(exception_formatter=plain_traceback)])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--browser` and `--mode`."""
    parser.addoption(
        "--browser",
        choices=["chromium", "firefox"],
        default="chromium",
        help="what opens web pages; with `firefox` the tests that open none do not run",
    )
    parser.addoption(
        "--mode",
        choices=["chosen", "embedded", "cluster"],
        default="chosen",
        help="what tests/acceptance and tests/console run against: one server that keeps all in its data directory, "
        "two nodes that share Kafka, ZooKeeper and PostgreSQL, or, by default, the former, and the latter where it may "
        "differ",
    )


NO_SKIPS = bool(os.environ.get("TESTS_NO_SKIPS"))
"""Whether a skipped test fails: if the whole suite must run, no dependency of a test may be missing."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Let skipped tests fail, where none may be skipped."""
    return _without_skips((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Let skipped files fail in the same way."""
    return _without_skips((yield))


def _without_skips(report: pytest.TestReport | pytest.CollectReport) -> pytest.TestReport | pytest.CollectReport:
    if NO_SKIPS and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _no_failures() -> None:
    """No test knows of what failed in another, which the log would leave out, or say of that it works again."""
    forget_failures()


# --- Spark ---


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for the whole run, as starting one takes seconds."""
    from rioni.projections.bulk.session import SparkOptions, spark_session  # noqa: PLC0415 - most runs need no Spark

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", spark_daemon.program(folder))
        with spark_session(folder, SparkOptions(settings={"spark.sql.shuffle.partitions": "2"})) as session:
            yield session


# --- processes ---

_SERVERS = pytest.StashKey[SharedServers]()
_WORKERS_MAX = 8


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the processes of the run share, in the process that starts the others."""
    config.addinivalue_line("markers", "package(name): is in the folder of this package; see `pytest_itemcollected`")
    if not hasattr(config, "workerinput"):
        if (scratch := move_to_memory()) is not None:
            config.add_cleanup(lambda: shutil.rmtree(scratch))
        trust_one_authority(config)
        config.stash[_SERVERS] = servers = SharedServers()
        config.add_cleanup(servers.close)


def trust_one_authority(config: pytest.Config) -> None:
    """Let clients trust one authority unless others are given: no test uses a server that another one has signed.

    PERF: reading those of all the world takes 25 ms for each client. Only nightly tests download packages.
    """
    if NIGHTLY:
        return
    folder = Path(tempfile.mkdtemp(prefix="rioni-authority-"))
    config.add_cleanup(lambda: shutil.rmtree(folder))
    os.environ.setdefault("SSL_CERT_FILE", str(Authority().write(folder)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker of pytest-xdist the address of the shared servers."""
    node.workerinput["shared_servers"] = node.config.stash[_SERVERS].address


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More workers than cores for `-n auto`, as most of the time tests wait for servers; as many for `-n logical`."""
    cores = os.cpu_count() or 1
    return cores if config.option.numprocesses == "logical" else min(2 * cores + 1, _WORKERS_MAX)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Distribute the tests, whatever `--dist` says."""
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Collect without looking for garbage, as thousands of tests stay that long; workers share the work of it."""
    gc.disable()
    if hasattr(session.config, "workerinput"):
        import_in_turns(session.config)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test with its package."""
    item.add_marker(pytest.mark.package(name=item.path.relative_to(TESTS).parts[0]))


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among what has been collected, nor in a forked child among what its parent has.

    There it may belong to threads that the child has not: librdkafka, Arrow and the like end with a segmentation fault.
    """
    gc.freeze()
    gc.enable()
    os.register_at_fork(after_in_child=gc.freeze)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that `--browser` names, in an order that makes a parallel run shorter."""
    if config.getoption("browser") == "firefox":
        config.hook.pytest_deselected(items=[item for item in items if not _runs_in_firefox(item)])
        items[:] = filter(_runs_in_firefox, items)
    if hasattr(config, "workerinput"):
        slow_first(items)


def _runs_in_firefox(item: pytest.Item) -> bool:
    """Whether a test opens pages, and needs nothing of Chromium alone."""
    return "browser" in getattr(item, "fixturenames", ()) and item.get_closest_marker("chromium") is None


# --- servers ---

_SHARED = pytest.StashKey[ExitStack]()


@pytest.fixture(scope="session")
def shared_by_group(request: pytest.FixtureRequest) -> Iterator[ExitStack]:
    """Closes its contexts when all tests that share them have run: idle servers take CPU from the rest of the run."""
    with ExitStack() as stack:
        request.config.stash[_SHARED] = stack
        yield stack


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close the shared contexts if the tests of a group run in a row, as they do in a worker of pytest-xdist."""
    if not hasattr(item.config, "workerinput") or nextitem is None or group_of(item.nodeid) == "":
        return
    if group_of(nextitem.nodeid) != group_of(item.nodeid) and _SHARED in item.config.stash:
        item.config.stash[_SHARED].close()


@pytest.fixture(scope="session")
def shared_server(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Returns the address of a server that all processes of the run share; see `address_of`."""
    config = request.config
    if (address := getattr(config, "workerinput", {}).get("shared_servers")) is not None:
        return partial(address_of, path=address)
    return lambda server: address_of(server, config.stash[_SERVERS].address)


@pytest.fixture(scope="session")
def lasting_postgres_url(shared_server: Callable[[str], str]) -> Callable[..., str]:
    """Creates a fresh database, empty or with `migrated=True`, and returns its URL; it stays until the run ends."""
    return partial(fresh_database, shared_server("postgres"))


@pytest.fixture
def postgres_url(lasting_postgres_url: Callable[..., str]) -> Iterator[Callable[..., str]]:
    """Creates a database in the same way, which is dropped when the test ends: each one takes 8 MB of memory."""
    with ExitStack() as databases:

        def fresh(**options: bool) -> str:
            url = lasting_postgres_url(**options)
            databases.callback(drop_database, url)
            return url

        yield fresh


def _needs_java() -> None:
    if reason := missing_programs():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_cluster(shared_server: Callable[[str], str]) -> LocalCluster:
    """One broker of Kafka for all tests, none of which may stop it; every test uses its own topics."""
    _needs_java()
    return LocalCluster([], [], shared_server("kafka"), "", "")


@pytest.fixture(scope="session")
def other_kafka_cluster(shared_by_group: ExitStack) -> LocalCluster:
    """A Kafka of this process, independent of the first; a test may stop it, if it starts it again."""
    _needs_java()
    return shared_by_group.enter_context(running_cluster(postgres=False))


@pytest.fixture(scope="session")
def zookeeper_cluster(shared_server: Callable[[str], str]) -> LocalCluster:
    """One ZooKeeper for all tests, none of which may stop it; every test uses its own path."""
    _needs_java()
    return LocalCluster([], [], "", shared_server("zookeeper"), "")


@pytest.fixture(scope="session")
def cluster_environment(
    kafka_cluster: LocalCluster, zookeeper_cluster: LocalCluster, lasting_postgres_url: Callable[[], str]
) -> Callable[[], dict[str, str]]:
    """Creates the shared databases and paths of another cluster, and returns the environment of its nodes."""

    def fresh() -> dict[str, str]:
        return {
            "RIONI_KAFKA": kafka_cluster.kafka,
            "RIONI_ZOOKEEPER": f"{zookeeper_cluster.zookeeper}/{uuid4()}",
            "RIONI_DATABASE": lasting_postgres_url(),
        }

    return fresh


@pytest.fixture(scope="session")
def cluster_nodes(
    cluster_environment: Callable[[], dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
    shared_by_group: ExitStack,
) -> RunningNodes:
    """Two nodes for tests of the API and of the console, each with its own names."""
    data = tmp_path_factory.mktemp("data") / "rioni"
    return shared_by_group.enter_context(running_nodes(data, environment=SETTINGS | cluster_environment()))
