import contextlib

import pytest

from rioni.storage.embedded.expendable import EmbeddedJobs
from tests.contracts.jobs import JOB, JobStoreContract


class TestEmbeddedJobs(JobStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        with contextlib.closing(EmbeddedJobs(tmp_path / "jobs.db")) as store:
            yield store

    @pytest.fixture
    def other(self, tmp_path):
        with contextlib.closing(EmbeddedJobs(tmp_path / "jobs.db")) as other:
            yield other

    def test_jobs_outlive_the_process_that_noted_them(self, tmp_path):
        for jobs in ([], [JOB]):
            with contextlib.closing(EmbeddedJobs(tmp_path / "jobs.db")) as store:
                assert list(store.all()) == jobs
                store.put(JOB)

    def test_nothing_is_opened_before_it_is_needed(self, tmp_path):
        EmbeddedJobs(tmp_path / "jobs.db").close()
        assert not (tmp_path / "jobs.db").exists()
