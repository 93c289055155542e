"""Measures the cost of a broker for tests: `python -m benchmarks.testing`.

The first and a second broker of a process, the fixture of a session in a pytest run of one test, and the space of a
test. Each round is a new process. Python's byte code is compiled before, as pip does on installing.
"""

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import rioni


BROKERS = """
import json, time
begin = time.perf_counter()
from rioni.testing import Broker
found = {}
with Broker() as broker:
    found["first broker of a process"] = time.perf_counter() - begin
    begin = time.perf_counter()
    with Broker():
        found["second broker"] = time.perf_counter() - begin
        begin = time.perf_counter()
    found["its end"] = time.perf_counter() - begin
    client = broker.client()
    from rioni.client import Subscription
    spaces = {"space of a test": 0, "... with an event type and a subscription": 1, "... with five of each": 5}
    for name, count in spaces.items():
        spent = []
        for _ in range(21):
            begin = time.perf_counter()
            with broker.isolated():
                spent.append(time.perf_counter() - begin)
                for event_type in map("order.{}".format, range(count)):
                    broker.create_event_type(event_type)
                    client.subscriptions.create(Subscription(owning_application="shop", event_types=[event_type]))
                begin = time.perf_counter()
            spent[-1] += time.perf_counter() - begin
        found[name] = sorted(spent)[10]
print(json.dumps(found))
"""
"""The space of a test is what its beginning and its end take, without what the test does."""
FIXTURE = """
import time
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    begin = time.perf_counter()
    result = yield
    with open("found", "a") as file:
        file.write(f"{fixturedef.argname} {time.perf_counter() - begin}\\n")
    return result
"""
TESTS = {
    "with a test of one line": "def test_it(rioni): pass\n",
    "with a test that imports SQLAlchemy": "import sqlalchemy\ndef test_it(rioni): pass\n",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    compileall.compile_dir(rioni.__path__[0], quiet=1)
    figures = defaultdict(list)
    for _ in range(options.rounds):
        done = subprocess.run([sys.executable, "-c", BROKERS], capture_output=True, text=True, check=True)
        for name, seconds in json.loads(done.stdout).items():
            figures[name].append(seconds)
        for name, test in TESTS.items():
            for run, seconds in zip(("first run", "second run"), _fixtures(test), strict=True):
                figures[f"fixture rioni_broker, {name}, {run}"].append(seconds)
    for name, found in figures.items():
        median, low, high = (1_000 * each for each in (statistics.median(found), min(found), max(found)))
        print(f"{name:<65} {median:7.1f} ms ({low:.1f} to {high:.1f})")


def _fixtures(test: str) -> list[float]:
    """Seconds that the fixture of the session takes in two pytest runs of a project."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "conftest.py").write_text(FIXTURE)
        Path(folder, "test_it.py").write_text(test)
        command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "rioni.testing.plugin"]
        path = str(Path(rioni.__path__[0]).parent)
        for _ in range(2):
            subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, check=True)
        lines = [line.split() for line in Path(folder, "found").read_text().splitlines()]
        return [float(seconds) for name, seconds in lines if name == "rioni_broker"]


if __name__ == "__main__":
    main()
