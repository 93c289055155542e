"""The command line: help, errors with the correct usage, and exit codes."""

import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rioni import __version__
from rioni.commands.system.storages import CreateStorage
from rioni.config.settings import SETTINGS, Config
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import TimelineOpened
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
from tests.support.api_server import api_server
from tests.support.builders import origin, timeline
from tests.support.commands import all_commands


COMMANDS = dict(all_commands())


def test_every_command_has_help_for_itself_and_each_option_with_an_example(run):
    without_example, without_help = [], []
    for command, described in COMMANDS.items():
        code, out, _ = run(*command, "--help")
        if code or f"rioni {' '.join(command)}" not in out.partition("Example: ")[2]:
            without_example.append(command)
        without_help += [(*command, parameter.name) for parameter in described.params if not parameter.help]
    assert without_example == []
    assert without_help == []


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["srve"], "serve"),
        (["bench", "pubish"], "publish"),
        (["config", "shw"], "show"),
        (["serve", "--prot", "1"], "--port"),
        (["rebuild", "--dryrun"], "--dry-run"),
        (["bench", "publish", "--conections", "1"], "--connections"),
        (["audit", "--format", "csv"], "jsonl"),
    ],
)
def test_a_wrong_command_option_or_choice_names_the_nearest_right_one(run, arguments, advice):
    code, _, err = run(*arguments)
    assert code == 2
    assert advice in err[err.index("Error") :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--port", "70000"], "command line: --port must be a whole number from 0 to 65535, not 70000"),
        (["verify", "--config", "absent.toml"], "There is no configuration file absent.toml."),
        (["bench", "publish", "--url", "ftp://x"], "ftp://x is not a base URL"),
    ],
)
def test_errors_of_the_user_are_one_line_and_exit_code_2(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith(f"Error: {message}")
    assert len(err.splitlines()) == 1


def test_an_unknown_variable_stops_every_command_that_reads_settings(run, monkeypatch):
    monkeypatch.setenv("RIONI_PROT", "1")
    for command in (("serve",), ("demo",), ("rebuild",), ("verify",), ("audit",), ("config", "show")):
        assert run(*command) == (
            2,
            "",
            "Error: environment: RIONI_PROT is not a setting; did you mean RIONI_PORT?\n",
        )


def test_the_settings_are_shown_with_their_sources_and_without_secrets(run, monkeypatch):
    Path("rioni.toml").write_text("port = 1234\n")
    monkeypatch.setenv("RIONI_DATABASE", "postgresql://rioni:sesame@localhost/rioni")
    code, out, _ = run("config", "show")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert {row[0] for row in rows[1:]} == set(SETTINGS)
    assert ["port", "1234", "rioni.toml"] in rows
    assert ["database", "***", "environment"] in rows
    assert ["host", "127.0.0.1", "default"] in rows


def test_the_version_is_printed(run):
    assert run("--version") == (0, f"rioni {__version__}\n", "")


def test_no_command_shows_the_help(run):
    code, out, err = run()
    assert code == 2
    assert "serve" in out + err


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01"])
def test_an_invalid_time_is_rejected_with_an_example(run, time):
    code, _, err = run("audit", "--since", time)
    assert code == 2
    assert f"{time} is not a time; write 2026-01-31" in err


def test_parquet_needs_a_folder(run):
    code, _, err = run("audit", "--format", "parquet")
    assert code == 2
    assert "--output FOLDER" in err


def test_a_benchmark_prints_figures_for_scripts_and_fails_if_the_server_rejects_requests(run):
    with api_server() as api:
        arguments = ("bench", "publish", "--url", api.url, "--requests", "3", "--batch", "2", "--json")
        code, out, _ = run(*arguments)
        assert code == 0
        assert json.loads(out)["events"] == 6
        api.publish_status = 503
        code, out, _ = run(*arguments)
        assert code == 1
        assert json.loads(out)["statuses"] == {"503": 3}


def test_a_benchmark_sends_its_token_with_each_request(run, monkeypatch):
    monkeypatch.setenv("RIONI_TOKEN", "t0ken")
    with api_server() as api:
        assert run("bench", "publish", "--url", api.url, "--requests", "3")[0] == 0
        api.stream_status = 409
        run("bench", "consume", "--url", api.url, "--seconds", "1")
        assert api.authorizations == {"Bearer t0ken"}


def test_a_token_in_the_environment_is_not_an_unknown_setting(run, monkeypatch):
    monkeypatch.setenv("RIONI_TOKEN", "t0ken")
    code, out, _ = run("config", "show")
    assert code == 0
    assert "t0ken" not in out


def test_a_benchmark_without_a_server_gives_instructions(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for verb in ("publish", "consume"):
        code, _, err = run("bench", verb, "--url", url)
        assert code == 2
        assert "Start it with rioni serve" in err


# --- on real data ---


def _change(data: str, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(f"{data}/registry.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def _verified(run, data):
    """Exit code and output of `rioni verify`, without its remarks: these name what no check shows, damaged or not."""
    code, out, err = run("verify", "--data", data)
    lines = out.splitlines()
    remarks = [line for line in lines if line.startswith("Remark: ")]
    assert remarks, "intact data has things that no check shows, too"
    assert lines[-1] not in remarks, "the summary is last"
    assert err == ""
    return code, [line for line in lines if line not in remarks]


def test_intact_data_is_reported_as_intact(run, data):
    assert _verified(run, data) == (0, ["Nothing is damaged or missing."])


def test_a_changed_log_entry_is_a_finding(run, data):
    _change(data, "UPDATE log SET actor = 'bob' WHERE position = 1")
    code, out, _ = run("verify", "--data", data)
    assert code == 1
    assert out.startswith("log, ")
    assert out.endswith(" findings\n")


def test_a_missing_file_is_a_finding_until_its_loss_is_accepted(run, data):
    Path(data, "coordination.db").unlink()
    text = "coordination.db is missing. It has to hold the committed cursors of all subscriptions."
    assert _verified(run, data) == (1, [text, "1 finding"])
    assert run("accept-loss", "--data", data)[0] == 2
    accepted = f"{text}\nAccepted; the decision is in the internal log.\n"
    assert run("accept-loss", "--data", data, "--reason", "x") == (0, accepted, "")
    assert run("accept-loss", "--data", data, "--reason", "x") == (0, "Nothing is missing.\n", "")
    assert run("verify", "--data", data)[0] == 0


def test_events_in_an_unavailable_kafka_are_not_reported_as_intact(run, tmp_path):
    config = Config(data=tmp_path / "data")
    configuration = {"bootstrap_servers": "127.0.0.1:1"}
    storage = StorageEntry(id="far", storage_type="kafka", configuration=configuration, default=False)
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as broker:
        broker.bus.dispatch(CreateStorage(storage=storage), broker.system_context())
        opened = TimelineOpened(event_type="order.created", timeline=timeline(1, "topic", storage_id="far"))
        with broker.log.transaction() as transaction:
            transaction.append(opened.stream, 0, [opened], origin())
    with prepare_startup(config):
        pass  # brings the read models up to date
    code, _, err = run("verify", "--data", str(config.data))
    assert code == 2
    assert "Error: Storage far: " in err


@pytest.mark.parametrize("command", [("verify",), ("audit",), ("rebuild",)], ids=" ".join)
def test_missing_data_is_named(run, command):
    code, out, err = run(*command, "--data", "absent")
    assert (code, out) == (2, "")
    assert err.startswith("Error: There is no data in absent.")


def test_the_audit_trail_is_shown_as_a_table_with_one_line_for_each_change(run, data):
    code, out, _ = run("audit", "--data", data)
    heading, entry = out.strip().splitlines()
    assert code == 0
    assert heading.split() == ["position", "when", "who", "from", "what", "resource", "how"]
    assert {"1", "rioni", "storage.created", "default"} <= set(entry.split())


def test_the_audit_trail_is_written_as_json_lines_with_both_states(run, data):
    code, out, _ = run("audit", "--data", data, "--format", "jsonl", "--output", "audit.jsonl")
    assert (code, out) == (0, "")
    (entry,) = map(json.loads, Path("audit.jsonl").read_text().splitlines())
    assert entry["before"] is None
    assert entry["after"]["id"] == entry["resource"] == "default"


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (["--actor", "rioni"], 1),
        (["--actor", "jane"], 0),
        (["--resource", "storage:default"], 1),
        (["--resource", "other"], 0),
        (["--since", "2020-01-01"], 1),
        (["--until", "2020-01-01T01:00:00+01:00"], 0),
    ],
)
def test_the_audit_trail_is_filtered_by_time_actor_and_resource(run, data, wanted, count):
    _, out, _ = run("audit", "--data", data, "--format", "jsonl", *wanted)
    assert len(out.splitlines()) == count


def test_an_output_that_cannot_be_written_is_named(run, data):
    code, _, err = run("audit", "--data", data, "--output", "absent/audit.txt")
    assert (code, err) == (2, "Error: absent/audit.txt can't be written: No such file or directory.\n")


# --- patching ---


_PATCHED = """
import sys
from rioni.__main__ import main
sys.argv[1:] = {arguments}
try:
    main()
except SystemExit:
    pass
gevent = sys.modules.get("gevent.monkey")
sys.exit(3 if gevent and gevent.is_module_patched("socket") else 4)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["serve", "--help"], 3),
        (["--version", "serve"], 3),
        (["demo", "--help"], 4),
        (["bench", "publish", "--help"], 4),
    ],
)
def test_only_the_server_is_patched_for_gevent(arguments, code):
    script = _PATCHED.format(arguments=arguments)
    assert subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=False).returncode == code


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--format", "delta", "--actor", "jane"], "A table has the whole log"),
        (["--master", "local[1]"], "--format"),
        (["--format", "delta", "--conf", "memory"], "name=value"),
        (["--format", "delta", "--data", "absent"], "There is no data in absent"),
        (["--format", "parquet"], "'parquet' is not 'delta'"),
        (["--format", "parquet"], "`rioni convert-archive FOLDER` converts tables of earlier releases"),
        (["--format", "jsonl"], "JSON lines are what an export without --format writes"),
    ],
)
def test_what_an_export_can_not_do_is_refused(run, arguments, advice):
    code, _, err = run("audit", "export", "--to", "table", *arguments)
    assert code == 2
    assert advice in err
    assert not Path("table").exists()
