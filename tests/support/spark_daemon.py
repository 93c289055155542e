"""Spark's Python workers, forked by a process that has their imports done before: half of the CPU time of most.

PERF: `pyspark.daemon` forks them, too, but each of them would import the package and pandas, which PyArrow asks for,
and after each task collect the garbage among all of that. Spark's own modules would be compiled for each daemon, as
it looks for them in a zip file.
"""

import gc
import importlib
import sys
from pathlib import Path


def program(folder: Path) -> str:
    """Write a program for `PYSPARK_PYTHON`: Python, with this daemon instead of Spark's; return its path."""
    path = folder / "python"
    # With -P the modules beside this one do not hide others.
    daemon = f'exec {sys.executable} -P {__file__} "$3"'
    path.write_text(f'#!/bin/sh\n[ "$2" = pyspark.daemon ] && {daemon}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


if __name__ == "__main__":
    sys.path[:] = ["", *(path for path in sys.path if not path.endswith("/pyspark.zip"))]
    # It takes the module of the workers from the arguments.
    daemon = importlib.import_module("pyspark.daemon")
    for module in ("pandas", "rioni.spark", "rioni.projections.bulk.executors"):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.manager()
