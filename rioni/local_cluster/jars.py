"""Fetches the servers' jars with Maven, once for each version of the list."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rioni.domain.errors import Unavailable


POM = Path(__file__).with_name("pom.xml")
FETCH_TIMEOUT_S = 600


def missing() -> str:
    """What this machine lacks to run the servers, as a sentence that says what to install; empty if nothing."""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    needs = {"java": "Java 17 or newer", "mvn": "Maven"}
    return f"This needs {' and '.join(needs[name] for name in lacking)} on the path." if lacking else ""


def fetch() -> str:
    """The class path of the servers; blocks while Maven downloads, which it does once.

    Raises:
        Unavailable: Java or Maven is missing, or Maven can't fetch the jars.
    """
    if reason := missing():
        raise Unavailable(reason)
    version = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    folder = _cache() / f"servers-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _download(Path(scratch) / "jars")
            # Renamed when complete, so that whoever is interrupted, or comes at the same time, leaves no half a folder.
            if not folder.is_dir():
                (Path(scratch) / "jars").rename(folder)
    return f"{folder}/*"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rioni"


def _download(folder: Path) -> None:
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime")
    command = ["mvn", "--quiet", "--batch-mode", f"--file={POM}", *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as ex:
        raise Unavailable(f"Maven did not fetch the servers within {FETCH_TIMEOUT_S} s") from ex
    if done.returncode:
        raise Unavailable(f"Maven could not fetch the servers:\n{done.stdout}{done.stderr}")
