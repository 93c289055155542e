from tests.support.campaigns import NIGHTLY


# Its servers take minutes of CPU; its docstring names the tests of the same faults that run every time.
collect_ignore = [] if NIGHTLY else ["test_faults.py"]
