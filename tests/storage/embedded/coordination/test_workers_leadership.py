from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rioni.storage.embedded.coordination.workers import FileLeadership
from tests.contracts.leadership import LeadershipContract


class TestFileLeadership(LeadershipContract):
    @pytest.fixture
    def leadership(self, tmp_path: Path) -> Iterator[FileLeadership]:
        with closing(FileLeadership(tmp_path / "leader")) as leadership:
            yield leadership

    @pytest.fixture
    def other(self, tmp_path: Path) -> Iterator[FileLeadership]:
        with closing(FileLeadership(tmp_path / "leader")) as leadership:
            yield leadership
