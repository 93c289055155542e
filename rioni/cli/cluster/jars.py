"""Fetches jars with Maven, the servers' by default, once for each version of the list."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rioni.domain.errors import Unavailable


POM = Path(__file__).with_name("pom.xml")
FETCH_TIMEOUT_S = 600


def missing(pom: Path = POM) -> str:
    """Return a sentence that asks to install the missing programs that the jars need; empty if nothing is missing."""
    wanted = ("java",) if fetched(pom) else ("java", "mvn")
    lacking = [name for name in wanted if shutil.which(name) is None]
    needs = {"java": "Java 17 or newer", "mvn": "Maven"}
    return f"This needs {' and '.join(needs[name] for name in lacking)} on the path." if lacking else ""


def fetched(pom: Path = POM) -> bool:
    """Whether an earlier run has left the jars here."""
    return _folder(pom).is_dir()


def fetch(pom: Path = POM) -> str:
    """The class path with all that the file lists; blocks while Maven downloads, which it does once.

    Raises:
        Unavailable: Java or Maven is missing, or Maven can't fetch the jars.
    """
    if reason := missing(pom):
        raise Unavailable(reason)
    folder = _folder(pom)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _download(pom, Path(scratch) / "jars")
            # Renamed when complete, so that interrupted or concurrent runs leave no incomplete folder.
            if not folder.is_dir():
                (Path(scratch) / "jars").rename(folder)
    return f"{folder}/*"


def _folder(pom: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rioni"
    return cache / f"jars-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"


def _download(pom: Path, folder: Path) -> None:
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime")
    command = ["mvn", "--quiet", "--batch-mode", f"--file={pom}", *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as ex:
        raise Unavailable(f"Maven did not fetch the jars within {FETCH_TIMEOUT_S} s") from ex
    if done.returncode:
        raise Unavailable(f"Maven could not fetch the jars:\n{done.stdout}{done.stderr}")
