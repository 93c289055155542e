"""gevent still looks for plugins by the function that is replaced."""

import subprocess
import sys


CODE = """
from importlib import metadata
looked = []
metadata.entry_points = lambda **_: looked.append(1) or ()
from gevent import monkey
if {replaced}:
    from rioni.patches.gevent import patch
    patch()
else:
    monkey.patch_all()
print(len(looked), monkey.is_module_patched("socket"))
"""


def test_gevent_looks_for_no_plugins_when_it_patches():
    looked = {}
    for replaced in (False, True):
        command = [sys.executable, "-c", CODE.format(replaced=replaced)]
        number, patched = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert patched == "True"
        looked[replaced] = int(number)
    assert looked[False] > looked[True] == 0
