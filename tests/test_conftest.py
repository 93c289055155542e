"""The behaviour of the test suite itself."""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import OperationalError

from tests.support import scratch
from tests.support.forked_servers import ForkedProcess
from tests.support.postgres import drop_database
from tests.support.scheduling import SHARING, SPLIT, group_of, import_in_turns
from tests.support.waiting import WAIT_S, wait_until


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
def test_skipped_tests_fail_where_none_may_be_skipped(tmp_path, content, environ, code, summary):
    done = subprocess.run(**suite(tmp_path, content, environ), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert summary in done.stdout


def suite(folder, content, environ, *options):
    """A suite of one file with the conftest.py of this one, as `subprocess` starts it."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_one_file.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "--rootdir", str(folder), str(folder)]
    kept = {name: value for name, value in os.environ.items() if name != "TESTS_NO_SKIPS"}
    return {"args": [*command, *options], "cwd": folder, "env": kept | {"PYTHONPATH": str(ROOT)} | environ}


def test_temporary_files_move_to_memory_if_there_is_enough(tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(scratch, "MEMORY", tmp_path)
    own, abandoned = (tmp_path / f"{scratch.PREFIX}{pid}-x" for pid in (os.getpid(), 2**30))
    for folder in (own, abandoned):
        folder.mkdir()
    monkeypatch.setattr(scratch, "ENOUGH_BYTES", 2**60)
    assert scratch.move_to_memory() is None
    assert list(tmp_path.iterdir()) == [own]
    monkeypatch.setattr(scratch, "ENOUGH_BYTES", 0)
    folder = scratch.move_to_memory()
    assert folder.parent == tmp_path
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder)
    assert scratch.move_to_memory() is None, "TMPDIR is set now"


def test_files_that_are_scheduled_by_name_exist():
    assert all((ROOT / file).is_file() for files in (SPLIT, *SHARING.values()) for file in files)


@pytest.mark.slow
@pytest.mark.postgres
def test_databases_are_dropped_though_they_are_in_use(lasting_postgres_url):
    url = lasting_postgres_url()
    engine = create_engine(url)
    with engine.connect():
        drop_database(url)
        with pytest.raises(OperationalError, match="does not exist"):
            create_engine(url).connect()
    engine.dispose()


def test_all_tests_of_a_file_that_shares_a_server_are_in_one_group():
    file = "tests/acceptance/test_switching_under_load.py"
    assert {group_of(f"{file}::test_it[{mode}]") for mode in ("kafka", "cluster")} == {"other_kafka_cluster"}
    for path in ("tests/acceptance/test_events.py", "tests/console/test_pages.py"):
        assert group_of(f"{path}::test_it[cluster]") == "cluster_nodes"


def test_workers_begin_to_import_at_different_files_and_import_all(tmp_path, monkeypatch):
    names = [f"test_in_turns_{letter}" for letter in "abcd"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(
            "from pathlib import Path\nwith Path('log').open('a') as f: print(__name__, file=f)"
        )
    (tmp_path / "test_in_turns_broken.py").write_text("raise ValueError")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        worker = {"workerid": f"gw{number}", "workercount": 2}
        import_in_turns(SimpleNamespace(args=[f"{tmp_path}::test"], rootpath=tmp_path, workerinput=worker))
        for name in names:
            del sys.modules[name]
    assert (tmp_path / "log").read_text().split() == [*names, *names[2:], *names[:2]]


USING = """
import time
from pathlib import Path

def test_it(postgres_url):
    Path("asked").write_text(postgres_url())
    Path("asked").rename("used")
    while not Path("enough").exists():
        time.sleep(0.01)
"""


@pytest.mark.postgres
@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGKILL], ids=["ends", "is interrupted", "is killed"])
def test_shared_servers_end_with_the_run_however_it_ends(tmp_path, number):
    with subprocess.Popen(**suite(tmp_path, USING, {}, "-n", "1"), start_new_session=True) as run:
        wait_until(lambda: (tmp_path / "used").exists() or run.poll() is not None)
        folder = Path(make_url((tmp_path / "used").read_text()).query["host"])
        assert folder.is_dir()
        if number == signal.SIGINT:
            os.killpg(run.pid, number)  # as a terminal does
        elif number == signal.SIGKILL:
            run.kill()
        (tmp_path / "enough").touch()
    # Its folder is removed when the server has ended.
    wait_until(lambda: not folder.exists())


def test_servers_that_end_at_the_same_time_all_report_their_exit_codes():
    for _ in range(10):
        servers = [ForkedProcess(["--version"], os.environ) for _ in range(10)]
        for server in servers:
            assert server.wait(WAIT_S) == 0
            server.stdout.close()


KILLED_WITH_A_SERVER = """
import os, signal, sys
from tests.support.forked_servers import ForkedProcess

print(ForkedProcess(["serve", "--port", "0", "--data", sys.argv[1]], os.environ).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_servers_end_with_a_test_run_that_is_killed(tmp_path):
    command = [sys.executable, "-c", KILLED_WITH_A_SERVER, str(tmp_path / "data")]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    server = Path(f"/proc/{int(killed.stdout)}")
    wait_until(lambda: not server.exists())


def test_what_the_tests_of_a_folder_share_ends_with_them():
    """Servers that nobody uses take CPU from all other tests: `package` is the scope of a folder."""
    whole_run = re.compile(r"fixture\(.*\bscope=.session")
    files = (ROOT / "tests").rglob("*.py")
    assert [each for each in files if whole_run.search(each.read_text())] == [ROOT / "tests" / "conftest.py"]


class _Circle:
    """Garbage that only the collector finds; says when it is collected."""

    def __init__(self, pipe):
        self.itself, self.pipe = self, pipe

    def __del__(self):
        os.write(self.pipe, b"collected")


def test_a_forked_child_collects_no_garbage_of_its_parent():
    reader, writer = os.pipe()
    _Circle(writer)
    if (child := os.fork()) == 0:
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    gc.collect()
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        assert said.read() == b"collected", "by the parent alone"
