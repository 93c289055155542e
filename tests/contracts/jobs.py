"""The contract of the port `JobStore`: subclasses provide the fixtures `store` and `other`."""

import msgspec

from rioni.domain.system.reports import ARCHIVE, DONE, RUNNING, Job, JobStore


JOB = Job(
    kind=ARCHIVE,
    name="lake",
    state=RUNNING,
    phase="orders 'é🛫\x00",
    done=1,
    total=2**53,
    detail="",
    id="a",
    client="jane",
    started_at="2026-11-20T10:00:00.000Z",
    updated_at="2026-11-20T10:00:00.000Z",
)


class JobStoreContract:
    def test_at_first_there_is_none(self, store: JobStore):
        assert list(store.all()) == []

    def test_a_job_is_kept_as_it_was_put_last_for_all_processes(self, store: JobStore, other: JobStore):
        store.put(JOB)
        assert list(other.all()) == [JOB]
        changed = msgspec.structs.replace(JOB, state=DONE)
        other.put(changed)
        assert list(store.all()) == [changed]

    def test_removed_jobs_are_forgotten_and_unknown_ones_ignored(self, store: JobStore):
        kept = msgspec.structs.replace(JOB, id="b")
        store.put(JOB)
        store.put(kept)
        store.remove(["a", "none"])
        assert list(store.all()) == [kept]
