"""`rioni cheat`: every example works, and all operations of the API are reached from the command line."""

import contextlib
import os
import re
import signal
import subprocess

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from rioni.cli.documentation import FOLDER, topics
from rioni.config.settings import Config
from rioni.domain.transparency.checkpoint import COSIGNATURE, verifier_of
from rioni.http.openapi.document import document
from rioni.installation.database import database_url
from rioni.projections.generations.rebuilds import DONE, RebuildPlan, begin
from rioni.sql.engines import open_engine
from tests.support.command_server import commands_on_path
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


SCRIPT_TIMEOUT_S = 120
WITNESS = Ed25519PrivateKey.from_private_bytes(bytes(32))
PLAN = RebuildPlan("green", ["states"], incremental=False, fold=1, upto=None, position=7, hash="00" * 32, tasks=2)
ONLY_FOR_OTHERS = {
    # Equal to PUT, for clients that can't send it.
    "POST /event-types/{}/partition-count",
    # `rioni archive` reports by itself.
    "PUT /jobs/{}",
    # For consumers, of events that they hold.
    "POST /subscriptions/{}/streams/{}/failures",
}
"""Operations that the client and this command line need not call."""
MISSING: set[str] = set()
"""Operations that no topic reaches yet."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    with commands_on_path(tmp_path_factory.mktemp("commands")) as folder:
        yield folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A separate broker, whose requests are counted; it knows the witness of the examples, and had a rebuild."""
    data = tmp_path_factory.mktemp("data") / "rioni"
    environment = {"RIONI_LOG_WITNESSES": str(verifier_of("auditor", WITNESS, COSIGNATURE))}
    with running_server(data, "--workers", "1", environment=environment) as running:
        engine = open_engine(database_url(Config(data=data)))
        begin(engine, PLAN, lambda _: False).finish(DONE, "7 entries, 0 differences")
        engine.dispose()
        yield running


@pytest.fixture(scope="module")
def run_topic(programs, broker, tmp_path_factory):
    """Runs the script of a topic once; returns what it said on failure."""
    outcomes = {}

    def run(name):
        if name not in outcomes:
            folder = tmp_path_factory.mktemp(name)
            (folder / "auditor.key").write_bytes(
                WITNESS.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            )
            (folder / "auditor.key").chmod(0o600)
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("RIONI_")},
                "PATH": f"{programs}:{os.environ['PATH']}",
                "HOME": str(folder),
                "RIONI_CONTEXTS": str(folder / "contexts.toml"),
                "RIONI_URL": broker.url,
            }
            command = ["bash", "-euo", "pipefail", str(FOLDER / f"{name}.sh")]
            outcomes[name] = _failure_of(command, folder, environment)
        return outcomes[name]

    return run


def _failure_of(command, folder, environment) -> str:
    """Run a script with all that it starts; returns what it said if it failed."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=SCRIPT_TIMEOUT_S)
        finally:
            # Its processes in the background.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    return "" if process.returncode == 0 else f"{process.returncode}\n{said}"


@pytest.mark.parametrize("name", topics())
def test_the_examples_of_a_topic_work(run_topic, name):
    assert run_topic(name) == ""


@pytest.mark.parametrize("topic", topics().values(), ids=topics())
def test_a_topic_has_a_title_and_words_before_its_commands(topic):
    assert topic.title
    assert not topic.title.endswith(".")
    assert any(example.commands for example in topic.examples)
    for example in topic.examples:
        assert example.words.endswith("."), example


def test_every_operation_of_the_api_is_reached(run_topic, broker):
    for name in topics():
        run_topic(name)
    described = {
        f"{method.upper()} {_normal(path)}" for path, methods in document()["paths"].items() for method in methods
    }
    # A stream is counted when the broker notices that its client has gone.
    wait_until(lambda: described - _reached(broker) <= ONLY_FOR_OTHERS | MISSING)
    assert sorted(described - _reached(broker) - ONLY_FOR_OTHERS) == sorted(MISSING)


def _reached(broker) -> set[str]:
    """The operations that were answered with success."""
    metrics = httpx.get(f"{broker.url}/metrics", headers={"Accept": "text/plain"}, timeout=WAIT_S, verify=False).text
    found = re.findall(
        r'^rioni_http_requests_total{method="(\w+)",route="([^"]*)",status="2\d\d"}', metrics, re.MULTILINE
    )
    return {f"{method} {_normal(route)}" for method, route in found}


def _normal(path: str) -> str:
    return re.sub(r"{.*?}", "{}", path)


def test_topics_are_listed_and_shown(run, snapshot):
    code, out, _ = run("cheat", "--json")
    assert code == 0
    assert [f'"topic":"{name}"' in out for name in topics()]
    _, out, _ = run("cheat", "shell")
    assert "# Manual pages of all commands, and of one.\nrioni man --to man1\n" in out
    code, _, err = run("cheat", "absent")
    assert code == 2
    assert "contexts" in err
