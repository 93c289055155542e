import pytest
from sqlalchemy import Engine

from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.expendable_tables import SqlJobs
from tests.contracts.jobs import JobStoreContract


pytestmark = pytest.mark.postgres


class TestSqlJobs(JobStoreContract):
    @pytest.fixture
    def store(self, postgres_engine: Engine):
        return SqlJobs(postgres_engine)

    @pytest.fixture
    def other(self, postgres_engine: Engine):
        engine = create_engine(postgres_engine.url.render_as_string(hide_password=False))
        yield SqlJobs(engine)
        engine.dispose()
