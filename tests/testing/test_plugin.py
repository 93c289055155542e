"""The plugin in pytest runs of their own, and the documentation, which is such a run."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rioni.testing import Broker


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
CONFIGURATION = """
[tool.pytest]
addopts = [
    "--import-mode=importlib", "--disable-plugin-autoload", "-p", "rioni.testing.plugin", "-p", "no:cacheprovider",
]
pythonpath = ["."]
filterwarnings = ["error"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a user, with the files of the documentation."""
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    for name, text in re.findall(r"^```(?:python|yaml)\n# ([\w/.]+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def test_pytest_finds_the_plugin_by_itself():
    (entry,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"].values()
    assert importlib.util.find_spec(entry)


@pytest.mark.slow
def test_the_code_of_the_documentation_works_in_several_processes(project: Path):
    """Every block of code is a file of the project."""
    assert PAGE.count("```python") == len([*project.glob("*.py")])
    done = run(project, "-p", "xdist", "-p", "anyio", "-n", "2", "-q")
    tests = sum(path.read_text().count("def test_") for path in project.glob("test_*.py"))
    assert f"{tests} passed" in done.stdout, done.stdout
    done = subprocess.run([sys.executable, "try_it.py"], cwd=project, capture_output=True, text=True, check=True)
    assert '"item": "book"' in done.stdout.replace("'", '"')


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs the dependency group typing")
def test_the_types_of_the_documentation_are_right(project: Path):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(project / "cache"), "."]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_definitions_of_the_configuration_are_there_in_each_test(project: Path):
    for each in project.glob("test_*.py"):
        each.unlink()
    setting = 'rioni_definitions = ["definitions"]\n'
    (project / "pyproject.toml").write_text(CONFIGURATION + setting)
    (project / "test_it.py").write_text(
        "import pytest\n"
        "from rioni.testing import Broker, BrokerError\n"
        "def names(broker):\n"
        "    return [each.name for each in broker.client().event_types.list()]\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_it(rioni, number):\n"
        "    assert names(rioni) == ['order.created']\n"
        "    rioni.create_event_type('order.paid')\n"
        "def test_wrong(rioni, tmp_path):\n"
        "    (tmp_path / 'wrong.yaml').write_text('name: order.lost')\n"
        "    with pytest.raises(BrokerError, match=r'wrong.yaml:1: order.lost: .*missing: owning_application'):\n"
        "        rioni.apply(tmp_path)\n"
        "    assert names(rioni) == ['order.created']\n"
    )
    done = run(project, "-q")
    assert "3 passed" in done.stdout, done.stdout


def test_a_test_that_fails_shows_what_the_broker_logged_meanwhile(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION + 'rioni_settings = ["partitions_max = 2"]')
    (tmp_path / "test_it.py").write_text(
        "def test_first(rioni):\n"
        "    rioni.create_event_type('order.created', partitions=2)\n"
        "    rioni.publish('order.created', {})\n"
        "    assert not rioni.expect('order.created')\n"
        "def test_second(rioni):\n"
        "    assert not rioni.create_event_type('order.created')\n"
    )
    done = run(tmp_path, "-q", "--tb=short")
    first, second = done.stdout.split("test_second", 1)
    assert "Rioni's log" in first
    assert "path=/event-types/order.created/events" in first
    assert "path=/event-types/order.created/events" not in second


def test_nothing_is_loaded_and_nothing_begins_where_no_test_uses_a_broker(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_uses_a_broker(rioni): pass\n"
        "def test_uses_none():\n"
        "    loaded = {name for name in sys.modules if name.startswith('rioni')}\n"
        "    assert loaded == {'rioni', 'rioni.testing', 'rioni.testing.plugin'}\n"
        "    assert not {'gevent', 'httpx', 'msgspec'} & {*sys.modules}\n"
    )
    assert "1 passed, 1 deselected" in run(tmp_path, "-q", "-k", "none").stdout
    assert "2 tests collected" in run(tmp_path, "-q", "--collect-only").stdout


def test_a_broker_begins_before_the_tests_are_imported_where_the_last_run_used_one(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION.replace(', "-p", "no:cacheprovider"', ""))
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "BEGUN = 'rioni.testing.launcher' in sys.modules\n"
        "def test_it(rioni): pass\n"
        "def test_without(): assert not BEGUN\n"
    )
    assert "2 passed" in run(tmp_path, "-q").stdout
    assert "1 failed" in run(tmp_path, "-q", "-k", "without").stdout
    assert "1 passed" in run(tmp_path, "-q", "-k", "without").stdout


def test_a_broker_that_was_started_elsewhere_is_used(shared_broker: Broker, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    (tmp_path / "test_it.py").write_text(
        "def test_it(rioni):\n"
        f"    assert rioni.url == {shared_broker.url!r}\n"
        "    rioni.create_event_type('order.created')\n"
    )
    assert "1 passed" in run(tmp_path, "-q", "--rioni-url", shared_broker.url).stdout
    assert shared_broker.client().event_types.list() == []


def test_settings_that_can_not_be_read_are_a_usage_error(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION + 'rioni_settings = ["log_level"]')
    (tmp_path / "test_it.py").write_text("def test_it(rioni): pass\n")
    assert "rioni_settings has 'log_level', which is not name=value" in run(tmp_path, "-q").stdout
