"""Workers with hanging threads are replaced, at a limited rate, and can end despite anything that hangs."""

import os
import subprocess
import sys

from rioni.server.watchdog import Replacements
from tests.support.waiting import WAIT_S


def test_replacements_are_rare_over_all_processes():
    """Reference operations#hanging-threads."""
    replacements = Replacements(300)
    assert replacements.allowed(1_000)
    # A worker that is forked later knows of it too.
    if (child := os.fork()) == 0:
        os._exit(replacements.allowed(1_100))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not replacements.allowed(1_299)
    assert replacements.allowed(1_300)


HANGING = """
from gevent import monkey; monkey.patch_all()
import gevent, os, threading
from rioni.server.watchdog import end_within
read, _ = os.pipe()
gevent.get_hub().threadpool.spawn(os.read, read, 1)
end_within(0.2)
os.read(read, 1)  # the hub hangs as well
"""


def test_a_process_ends_although_its_threads_and_its_hub_hang():
    done = subprocess.run([sys.executable, "-c", HANGING], timeout=WAIT_S, check=False)
    assert done.returncode == 1
