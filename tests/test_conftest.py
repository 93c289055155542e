"""What the suite promises of itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
SKIPPING = """
import pytest

@pytest.mark.skip(reason="no browser")
def test_a():
    pass

def test_b():
    pytest.skip("no browser")
"""


@pytest.mark.parametrize(
    ("content", "environ", "code", "summary"),
    [
        (SKIPPING, {}, 0, "2 skipped"),
        (SKIPPING, {"TESTS_NO_SKIPS": "1"}, 1, "1 failed, 1 error"),
        ("import pytest\npytest.skip(allow_module_level=True)", {"TESTS_NO_SKIPS": "1"}, 2, "1 error"),
    ],
    ids=["may be skipped", "no test may be skipped", "no file may be skipped"],
)
def test_skipped_tests_fail_where_nothing_may_be_missing(tmp_path, content, environ, code, summary):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_skipping.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "--rootdir", str(tmp_path), str(tmp_path)]
    environ = {"PYTHONPATH": str(ROOT)} | environ
    kept = {name: value for name, value in os.environ.items() if name != "TESTS_NO_SKIPS"}
    done = subprocess.run(command, cwd=tmp_path, env=kept | environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert summary in done.stdout
