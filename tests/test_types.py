import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
PROJECT = "tests/client/typing/order_service.py"
"""A sample program that uses the client; mypy checks it as well (`tool.mypy` in pyproject.toml)."""


def check(*command):
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it would ask for newer versions of itself
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs the dependency group typing")
def test_mypy_finds_no_error():
    """Run as a test, mypy is parallel to the others; a separate environment would take longer to install."""
    check("mypy")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="needs the dependency group typing")
def test_pyright_finds_no_error_in_what_a_user_of_the_client_writes():
    check("pyright", "--pythonpath", sys.executable, PROJECT)
