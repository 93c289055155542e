from tests.support.campaigns import NIGHTLY


# They take minutes; their docstrings name the tests of the same faults that run every time.
collect_ignore = [] if NIGHTLY else ["test_faults.py", "test_outages.py"]
