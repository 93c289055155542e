"""The wheel: its contents, and the extras that the quick start names."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rioni import __version__


ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory):
    """The wheel, built by hatchling from a copy."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "rioni", copy / "rioni", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": "", "SOURCE_DATE_EPOCH": "1600000000"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(command, cwd=copy, env=environment, check=True, capture_output=True)
    (path,) = (copy / "dist").iterdir()
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_wheel_contains_the_package_with_its_types_and_migrations_and_nothing_else(wheel):
    names = set(wheel.namelist())
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "rioni").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    information = f"rioni-{__version__}.dist-info/"
    assert {name for name in names if not name.startswith(information)} == expected
    assert "rioni/py.typed" in names
    assert any(re.fullmatch(r"rioni/storage/sql/migrations/versions/\w+\.py", name) for name in names)
    assert f"{information}licenses/LICENSE" in names


def test_the_wheel_offers_the_command_and_the_extras_that_the_quick_start_names(wheel):
    information = f"rioni-{__version__}.dist-info/"
    assert "rioni = rioni.__main__:main" in wheel.read(f"{information}entry_points.txt").decode()
    metadata = Parser().parsestr(wheel.read(f"{information}METADATA").decode())
    page = (ROOT / "docs/quickstart.md").read_text()
    named = {name for extras in re.findall(r"(?:rioni|\.)\[([a-z,]+)\]", page) for name in extras.split(",")}
    assert named
    assert named <= set(metadata.get_all("Provides-Extra"))


def test_the_lock_file_has_a_matching_version_of_every_dependency():
    locked = {}
    for line in (ROOT / "requirements/dev.txt").read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", line), line
        requirement = Requirement(line)
        locked.setdefault(requirement.name, []).append(str(requirement.specifier).removeprefix("=="))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    groups = {name: group for name, group in project["dependency-groups"].items() if name != "lock"}
    needed = map(Requirement, chain(project["project"]["dependencies"], *extras.values(), *groups.values()))
    unlocked = [
        str(each)
        for each in needed
        if each.name != "rioni" and not any(map(each.specifier.contains, locked.get(canonicalize_name(each.name), [])))
    ]
    assert unlocked == []


def test_the_version_is_defined_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
