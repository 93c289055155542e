"""Extras that errors name can be installed: from the source of this installation, as no index has Rioni yet."""

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

import rioni
from rioni.files.extras import requirement


ROOT = Path(__file__).parents[2]
COMMIT = "58c7e3b000000000000000000000000000000000"


@pytest.fixture
def origin(monkeypatch, tmp_path):
    """A function that sets the source of the installation."""

    def say(direct_url):
        (tmp_path / "METADATA").write_text("Name: rioni\nVersion: 1\n")
        if direct_url is not None:
            (tmp_path / "direct_url.json").write_text(json.dumps(direct_url))
        monkeypatch.setattr(metadata, "distribution", lambda _: metadata.PathDistribution(tmp_path))

    return say


def test_a_folder_is_installed_again(origin, tmp_path):
    origin({"url": tmp_path.as_uri(), "dir_info": {}})
    assert requirement("spark") == f"'{tmp_path}[spark]'"
    origin({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    assert requirement("spark") == f"--editable '{tmp_path}[spark]'"


def test_a_wheel_is_installed_again_while_it_is_there(origin, tmp_path):
    wheel = tmp_path / "rioni 1.whl"
    wheel.touch()
    origin({"url": wheel.as_uri(), "archive_info": {}})
    assert requirement("lake") == f"'{wheel}[lake]'"
    wheel.unlink()
    assert requirement("lake") == "'rioni[lake]'"


@pytest.mark.parametrize(
    ("direct_url", "expected"),
    [
        (None, "'rioni[lake]'"),
        (
            {"url": "https://example.org/rioni.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"'rioni[lake] @ git+https://example.org/rioni.git@{COMMIT}'",
        ),
        (
            {"url": "https://example.org/rioni.whl", "archive_info": {}},
            "'rioni[lake] @ https://example.org/rioni.whl'",
        ),
    ],
)
def test_what_is_not_on_this_machine_is_named_as_it_was_found(origin, direct_url, expected):
    origin(direct_url)
    assert requirement("lake") == expected


def test_nothing_names_a_package_of_an_index_that_is_not_there():
    product = Path(rioni.__file__).parent
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *product.rglob("*.py"), *product.rglob("*.sh")]
    assert len(pages) > 400
    named = re.compile(r"(?:pip|uv|pipx) (?:install|add) (?:-\S+ (?:\S+ )?)*['\"]?rioni(?:\b(?!-)|\[)")
    found = {str(path): each[0] for path in pages for each in named.finditer(path.read_text(encoding="utf-8"))}
    assert not found
