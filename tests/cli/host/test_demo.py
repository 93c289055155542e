"""The demo as a new user runs it, with fewer flights."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.support.waiting import WAIT_S


pytestmark = [pytest.mark.slow, pytest.mark.spark]


COMMAND = [sys.executable, "-m", "rioni", "demo", "--exit", "--flights", "3000"]


def environment(folder, port):
    return {**os.environ, "RIONI_PORT": str(port), "RIONI_DATA": str(folder), "COLUMNS": "200"}


def run_demo(folder, port):
    return subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=240, check=False, env=environment(folder, port)
    )


def test_every_promise_is_checked_and_the_demo_can_be_repeated(tmp_path):
    for _ in range(2):
        done = run_demo(tmp_path / "data", 0)
        assert done.returncode == 0, done.stdout + done.stderr
        for promise in (
            "Published 7,796 events",
            "Consumed 3,000 events",
            "Archived 3,000 events as a Delta table",
            "Nothing is missing, order holds for every aircraft",
            "subscription.created",
            "they equal the live ones, row by row",
            "The broker has ended.",
        ):
            assert promise in done.stdout
        # Between the progress bars there is only the address of the broker.
        (address,) = done.stderr.splitlines()
        assert address.startswith("Rioni serves http://127.0.0.1:")


def test_a_port_in_use_ends_the_demo_with_a_reason(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_demo(tmp_path / "data", taken.getsockname()[1])
    assert done.returncode == 2
    assert "is in use by another process" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_demo_that_is_asked_to_end_ends_its_broker(tmp_path, asked):
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(COMMAND, text=True, env=environment(tmp_path / "data", 0), **pipes) as demo:
        address = demo.stderr.readline()
        assert "Rioni serves" in address
        demo.send_signal(asked)
        _, err = demo.communicate(timeout=WAIT_S)
    assert demo.returncode == 128 + asked, err
    port = int(address.partition("127.0.0.1:")[2].split()[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    assert "Traceback" not in err
