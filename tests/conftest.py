import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from rioni.local_cluster import jars
from rioni.local_cluster.cluster import LocalCluster, running_cluster
from tests.support.postgres import running_postgres


# A shared machine may be slow at times; what a test promises is not how fast it is.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _COMMON, max_examples=50)
settings.register_profile("ci", _COMMON, max_examples=200, derandomize=True, print_blob=True)
settings.register_profile("nightly", _COMMON, max_examples=2_000, stateful_step_count=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--mode`."""
    parser.addoption(
        "--mode",
        choices=["chosen", "embedded", "cluster"],
        default="chosen",
        help="what tests/acceptance runs against: one server that keeps all in its data directory, two nodes that "
        "share Kafka, ZooKeeper and PostgreSQL, or, by default, the former, and the latter where it may differ",
    )


NO_SKIPS = bool(os.environ.get("TESTS_NO_SKIPS"))
"""Whether a skipped test fails: where the whole suite has to run, nothing may be missing that a test needs."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Let what was skipped fail, where nothing may be."""
    return _without_skips((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """The same for files that are skipped as a whole."""
    return _without_skips((yield))


def _without_skips(report: pytest.TestReport | pytest.CollectReport) -> pytest.TestReport | pytest.CollectReport:
    if NO_SKIPS and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[Callable[[], str]]:
    """Makes a fresh database and returns its URL; each process of a test run has a server of its own."""
    with running_postgres() as fresh_database:
        yield fresh_database


def _running(**servers: int) -> Iterator[LocalCluster]:
    if reason := jars.missing():
        pytest.skip(reason)
    with running_cluster(**servers, postgres=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[LocalCluster]:
    """One broker of Kafka for all tests of a process; every test uses topics of its own."""
    yield from _running()


@pytest.fixture(scope="session")
def other_kafka_cluster() -> Iterator[LocalCluster]:
    """A Kafka that has nothing to do with the first one; a test may stop it, if it starts it again."""
    yield from _running()


@pytest.fixture(scope="session")
def zookeeper_cluster() -> Iterator[LocalCluster]:
    """One ZooKeeper for all tests of a process; every test uses a path of its own."""
    yield from _running(brokers=0, zookeepers=1)


@pytest.fixture(scope="session")
def cluster_environment(
    kafka_cluster: LocalCluster, zookeeper_cluster: LocalCluster, postgres_url: Callable[[], str]
) -> Callable[[], dict[str, str]]:
    """Makes what the nodes of another cluster share, and returns the environment that says so."""

    def fresh() -> dict[str, str]:
        return {
            "RIONI_KAFKA": kafka_cluster.kafka,
            "RIONI_ZOOKEEPER": f"{zookeeper_cluster.zookeeper}/{uuid4()}",
            "RIONI_DATABASE": postgres_url(),
        }

    return fresh
