import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import running_postgres


# A shared machine may be slow at times; what a test promises is not how fast it is.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _COMMON, max_examples=50)
settings.register_profile("ci", _COMMON, max_examples=200, derandomize=True, print_blob=True)
settings.register_profile("nightly", _COMMON, max_examples=2_000, stateful_step_count=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[Callable[[], str]]:
    """Makes a fresh database and returns its URL; each process of a test run has a server of its own."""
    with running_postgres() as fresh_database:
        yield fresh_database
