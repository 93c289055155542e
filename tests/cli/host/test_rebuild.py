"""A rebuild that can't begin is no difference: one line that says what is wrong, and exit code 2."""

import socket

import pytest


pytestmark = pytest.mark.spark


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.parametrize("scheme", ["spark", "sc"])
@pytest.mark.parametrize("more", [["--dry-run"], ["--dry-run", "--format", "jsonl"], []])
def test_a_master_that_does_not_answer_is_2(run, data, free_port, scheme, more):
    master = f"{scheme}://127.0.0.1:{free_port}"
    code, out, err = run("rebuild", *more, "--master", master, "--data", data)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == (
        f"Error: No Spark server answers at {master} (127.0.0.1:{free_port}: [Errno 111] Connection refused). "
        "Is it running there? See --master."
    )
