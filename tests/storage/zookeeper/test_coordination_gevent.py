from pathlib import Path

import pytest

from tests.storage.zookeeper import patched


@pytest.mark.slow
@pytest.mark.zookeeper
def test_a_patched_process_works_with_greenlets_and_threads(hosts: str, tmp_path: Path):
    patched.run(hosts, tmp_path)
