"""The layout of the repository: its packages, the place of their tests, and dependencies in one direction."""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


ROOT = Path(__file__).parents[1]
PACKAGES = (
    "cli",
    "client",
    "commands",
    "config",
    "console",
    "domain",
    "files",
    "http",
    "installation",
    "lake",
    "operations",
    "patches",
    "projections",
    "server",
    "spark",
    "sql",
    "storage",
    "testing",
    "wire",
)
VIEWS = {"domain", "wire", "client"}
"""Packages that may use the same name: the thing in the broker, in a body, and for a client."""


def _is_package(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.py"))


def test_the_packages_are_as_listed():
    assert tuple(sorted(path.name for path in (ROOT / "rioni").iterdir() if _is_package(path))) == PACKAGES


def test_every_package_has_tests():
    assert [package for package in PACKAGES if not any((ROOT / "tests" / package).rglob("test_*.py"))] == []


def _has_module(path: Path) -> bool:
    mirrored = ROOT / "rioni" / path.parent.relative_to(ROOT / "tests") / path.stem.removeprefix("test_")
    # Several files may test one module, each an aspect: test_events_model.py tests events.py.
    candidates = [mirrored, *(mirrored.with_name(mirrored.name.rsplit("_", n)[0]) for n in range(1, 4))]
    return any(candidate.with_suffix(".py").exists() or _is_package(candidate) for candidate in candidates)


def test_every_test_file_is_in_the_folder_of_its_module():
    tests = [path for package in PACKAGES for path in (ROOT / "tests" / package).rglob("test_*.py")]
    assert tests
    assert [str(path.relative_to(ROOT)) for path in tests if not _has_module(path)] == []


def test_every_folder_of_tests_is_a_package():
    missing = [
        path for path in {test.parent for test in (ROOT / "tests").rglob("*.py")} if not (path / "__init__.py").exists()
    ]
    assert not missing


def test_dependencies_point_in_one_direction():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_name_of_a_class_means_one_thing():
    packages = defaultdict(list)
    for path in sorted((ROOT / "rioni").rglob("*.py")):
        if path.parent.name != "_sync":  # generated from `_async`
            package = path.relative_to(ROOT / "rioni").parts[0]
            for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
                packages[name].append(package if package in VIEWS else "elsewhere")
    assert {name: places for name, places in packages.items() if max(Counter(places).values()) > 1} == {}


def test_no_module_needs_itself():
    """Neither by other modules, nor for an annotation alone."""
    graph = grimp.build_graph("rioni", cache_dir=None)
    needed = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(needed) > len(PACKAGES)
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as ex:
        pytest.fail(f"These modules import each other: {' -> '.join(ex.args[1])}")
