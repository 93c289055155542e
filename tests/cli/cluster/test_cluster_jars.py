import shutil
from pathlib import Path

import pytest

from rioni.cli.cluster import cluster
from rioni.domain.errors import Unavailable


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache without jars, on a machine without Maven."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "mvn" else f"/bin/{name}")
    return tmp_path / "rioni"


def test_maven_is_needed_to_fetch_the_servers(cache):
    with pytest.raises(Unavailable, match=r"This needs Maven on the path\."):
        cluster.fetch_jars()


def test_cached_jars_are_not_fetched_again(cache):
    folder = cluster._jars_folder(cluster.POM)
    folder.mkdir(parents=True)
    assert folder.parent == cache
    assert cluster.fetch_jars() == f"{folder}/*"


def test_each_list_of_jars_has_a_folder_of_its_own(cache, tmp_path):
    cluster._jars_folder(cluster.POM).mkdir(parents=True)
    (tmp_path / "pom.xml").write_text("<project/>")
    assert cluster.jars_are_fetched()
    assert not cluster.jars_are_fetched(tmp_path / "pom.xml")
    with pytest.raises(Unavailable, match=r"This needs Maven on the path\."):
        cluster.fetch_jars(tmp_path / "pom.xml")
