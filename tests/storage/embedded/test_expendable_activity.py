import contextlib

import pytest

from rioni.domain.system.client_activity import LastActivity
from rioni.storage.embedded.expendable import EmbeddedActivity
from tests.contracts.activity import ALICE, ActivityContract, by_client


class TestEmbeddedActivity(ActivityContract):
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "activity.db"

    @pytest.fixture
    def activity(self, path):
        with contextlib.closing(EmbeddedActivity(path)) as activity:
            yield activity

    @pytest.fixture
    def other(self, path):
        with contextlib.closing(EmbeddedActivity(path)) as other:
            yield other

    def test_activity_outlives_the_process_that_wrote_it(self, path):
        with contextlib.closing(EmbeddedActivity(path)) as activity:
            activity.add({ALICE: LastActivity(1, 2, 3)})
        with contextlib.closing(EmbeddedActivity(path)) as activity:
            assert by_client(activity, "publish", "order") == {"alice": LastActivity(1, 2, 3)}
