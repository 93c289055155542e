"""`rioni doctor` against a healthy broker, one that is sick all over, and none at all."""

import hashlib
import json
import stat
import sys
import tarfile
from collections import defaultdict
from pathlib import Path

import pytest

from rioni.cli.doctor.command import url_of
from rioni.cli.doctor.diagnosis import Host, all_checks
from rioni.cli.doctor.shown import HIDDEN
from rioni.client import Client, EventType, Schema, Subscription
from rioni.config.settings import Config
from tests.support.certificates import authority
from tests.support.scripted_server import Answer
from tests.support.server import running_server
from tests.support.sick_broker import EVENT, sick_broker


OVER_HTTP = {"Connection", "Broker", "Metrics", "Registry", "Consumers"}
QUICK = ("--interval", "0.01")


@pytest.fixture
def sick(scripted):
    scripted.script_paths(sick_broker())
    return scripted


@pytest.fixture
def doctor(run):
    """Runs the command with JSON lines; returns the exit code, and the results by the name of the check."""

    def diagnosed(*arguments):
        code, out, err = run("doctor", "--json", *QUICK, *arguments)
        return code, {each["check"]: each for each in map(json.loads, out.splitlines())}, err

    return diagnosed


def of_status(results):
    found = defaultdict(set)
    for name, each in results.items():
        found[each["status"]].add(name)
    return found


def test_a_healthy_broker_has_no_errors(doctor, broker):
    code, results, _ = doctor("--url", broker.url, "--skip", "registry", "--skip", "consumers")
    assert code == 0
    assert not of_status(results)["error"]
    assert {"reachable", "clock", "liveness", "readiness", "packages"} <= of_status(results)["ok"]
    assert "name its data directory with --data" in results["disk-space"]["reason"]


def test_everything_is_found_in_a_sick_broker(doctor, sick):
    code, results, _ = doctor("--url", sick.url)
    assert code == 1
    expected = {name for name, check in all_checks().items() if check.group in OVER_HTTP}
    found = of_status(results)
    # Checks of the connection or of the host of the broker.
    others = {"reachable", "response-time", "unencrypted", "token", "tls-certificate"}
    assert expected - found["error"] - found["warning"] == others
    assert "timeline 2 of order" in results["timelines"]["findings"][0]["text"]
    assert "had 3 more events" in results["growing-lag"]["findings"][0]["text"]
    assert "4 entries came since" in results["witnesses"]["findings"][0]["text"]
    assert all(request.method == "GET" for request in sick.requests)


def test_people_see_findings_with_advice_and_what_was_left_out(run, sick):
    code, out, _ = run("doctor", *QUICK, "--url", sick.url)
    assert code == 1
    assert out.startswith(f"Broker {sick.url} (--url)\n")
    assert "  error    readiness\n" in out
    assert "           /readyz: disk: The disk of the data directory is full.\n           -> Free space" in out
    assert "checks: this is not known to be the broker's host" in out
    assert "Whether the broker answers" not in out
    _, out, _ = run("doctor", *QUICK, "--url", sick.url, "--verbose", "--only", "connection")
    assert "  ok       reachable (Whether the broker answers `GET /health`)\n" in out
    assert "  skipped  tls-certificate" in out


def test_a_dead_port_is_an_error_and_nothing_hangs(doctor):
    code, results, _ = doctor("--url", "http://127.0.0.1:1")
    assert code == 1
    assert of_status(results)["error"] == {"reachable"}
    assert "refused" in results["liveness"]["reason"]


def test_a_server_that_is_no_broker_is_an_error(doctor, scripted):
    scripted.script(Answer(200, b"<html>Welcome</html>"))
    code, results, _ = doctor("--url", scripted.url)
    assert code == 1
    assert "not as a broker does" in results["reachable"]["findings"][0]["text"]
    assert not of_status(results)["warning"] & {name for name, each in all_checks().items() if each.group in OVER_HTTP}


def test_a_refused_token_is_an_error_and_other_checks_say_what_they_lack(doctor, scripted):
    refused = Answer(401, {"title": "Unauthorized", "detail": "Full authentication is required", "status": 401})
    scripted.script_paths({path: [refused] for path in sick_broker()} | {"/health": [Answer(200, b"OK")]})
    code, results, _ = doctor("--url", scripted.url, "--token", "of-the-user")
    assert code == 1
    assert results["token"]["findings"][0]["text"].startswith("The broker answers 401 to this token.")
    assert "401 Unauthorized" in results["restrictions"]["reason"]
    assert scripted.requests[0].headers["Authorization"] == "Bearer of-the-user"


def test_a_token_that_can_not_be_had_is_an_error(doctor, run, sick, tmp_path):
    assert run("context", "add", "sick", "--url", sick.url, "--token-command", "false")[0] == 0
    code, results, _ = doctor("--context", "sick", "--only", "connection")
    assert code == 1
    assert "failed with exit code 1" in results["token"]["findings"][0]["text"]
    assert "Authorization" not in sick.requests[0].headers


def test_warnings_fail_only_if_that_was_asked_for(doctor, sick):
    assert doctor("--url", sick.url, "--only", "restrictions")[0] == 0
    assert doctor("--url", sick.url, "--only", "restrictions", "--strict")[0] == 1


def test_checks_are_listed_and_unknown_ones_refused(run):
    code, out, _ = run("doctor", "--list", "--json")
    assert code == 0
    assert [json.loads(line)["check"] for line in out.splitlines()] == list(all_checks())
    code, _, err = run("doctor", "--only", "clok")
    assert (code, err) == (2, "Error: There is no check clok; did you mean clock?\n")


def test_the_output_for_programs_is_stable(run, sick, snapshot):
    _, out, _ = run("doctor", "--json", *QUICK, "--url", sick.url, "--only", "restrictions", "--only", "disk-space")
    snapshot("doctor", out)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A broker whose host this is, and its data directory."""
    folder = tmp_path_factory.mktemp("served")
    environment = {"RIONI_PSEUDONYM_SALT": "salt-of-the-broker"}
    # A separate process, whose arguments and environment are to be seen.
    with running_server(
        folder / "rioni", "--workers", "1", environment=environment, program=["-m", "rioni"]
    ) as running:
        yield running, folder / "rioni"


def test_the_host_of_a_broker_is_looked_at(doctor, run, served):
    running, data = served
    _, results, _ = doctor("--data", str(data), "--url", running.url, "--skip", "registry", "--fsync")
    # The machine of the tests may lack memory, a disk or a time server.
    assert {"process", "data", "open-files", "valid-settings", "unreachable-here"} <= of_status(results)["ok"]
    assert results["disk-speed"]["status"] in {"ok", "warning"}
    _, out, _ = run("doctor", *QUICK, "--data", str(data), "--url", running.url, "--only", "reachable")
    assert out.startswith(f"Broker {running.url} (--url); on its host: data {data}, settings of process ")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"port": 8090}, "http://localhost:8090"),
        ({"host": "0.0.0.0"}, "http://localhost:8080"),
        ({"host": "::"}, "http://localhost:8080"),
        ({"host": "192.0.2.7"}, "http://192.0.2.7:8080"),
        ({"host": "2001:db8::1"}, "http://[2001:db8::1]:8080"),
        ({"host": "broker.example.org", "tls_certificate": Path("c.pem")}, "https://broker.example.org:8080"),
        ({"port": 0}, "http://localhost:8080"),
    ],
)
def test_without_a_url_the_broker_is_where_its_settings_say(settings, url):
    assert url_of(Host(Path("data"), config=Config(**settings))) == url
    assert url_of(Host(Path("data"))) == "http://localhost:8080"


def test_a_broken_data_directory_of_a_broker_that_does_not_run_is_described(doctor, tmp_path):
    data, log = tmp_path / "data", tmp_path / "rioni.log"
    data.mkdir(mode=0o755)
    (data / "format").write_text("rioni data directory, format 9\n")
    (data / "restore.json").write_text("{}")
    log.write_text("2026-11-25 [error    ] the disk is full [rioni]\n")
    code, results, _ = doctor("--data", str(data), "--log", str(log), "--url", "http://127.0.0.1:1")
    assert code == 1
    assert {"reachable", "process", "data"} <= of_status(results)["error"]
    assert "log-errors" in of_status(results)["warning"]
    assert "ends with: 2026-11-25 [error    ] the disk is full" in results["process"]["findings"][0]["text"]
    assert "was interrupted" in results["data"]["findings"][0]["text"]
    assert sorted(path.name for path in data.iterdir()) == ["format", "restore.json"]
    code, results, _ = doctor("--data", str(tmp_path / "absent"), "--only", "data")
    assert (code, results["data"]["status"]) == (1, "error")


def test_settings_that_can_not_be_used_are_an_error(doctor, tmp_path):
    file = tmp_path / "rioni.toml"
    file.write_text("port = 'x'\n")
    code, results, _ = doctor("--config", str(file), "--only", "settings")
    assert code == 1
    assert "port must be a whole number" in results["valid-settings"]["findings"][0]["text"]
    assert results["open-access"]["reason"] == "the settings can't be used"


def test_the_certificate_of_a_broker_is_looked_at(doctor, tmp_path):
    certificate, key = authority().issue(tmp_path)
    options = ("--workers", "1", "--tls-certificate", str(certificate), "--tls-key", str(key))
    with running_server(tmp_path / "rioni", *options) as running:
        code, results, _ = doctor("--url", running.url, "--only", "connection")
        assert code == 1
        assert "do not trust the certificate" in results["tls-certificate"]["findings"][0]["text"]
        trusted = ("--ca-certificate", str(authority().write(tmp_path)))
        code, results, _ = doctor("--url", running.url, *trusted, "--only", "connection")
    assert code == 0
    # It is valid for a day.
    assert [each["severity"] for each in results["tls-certificate"]["findings"]] == ["warning"]
    assert results["reachable"]["status"] == "ok"


SECRETS = {
    name: f"planted-{name}-4711"
    for name in (
        "environment",
        "token",
        "broker-environment",
        "database",
        "salt",
        "kafka",
        "kafka-key",
        "zookeeper",
        "toml-url",
        "signing-key",
        "tls-key",
        "log-header",
        "log-url",
        "log-json",
        "log-known",
        "log-pem",
        "storage",
        "metric",
        "flow",
        "log-option",
        "log-curl",
        "log-words",
        "log-code",
        "log-query",
        "log-traceback",
        "url-of-a-setting",
        "list-of-a-setting",
        "kafka-user",
        "version",
        "blocked-detail",
        "argument",
    )
}


def test_no_secret_is_in_a_bundle_wherever_it_was_planted(run, scripted, tmp_path, monkeypatch):
    planted = SECRETS
    config, data, log = tmp_path / "rioni.toml", tmp_path / "data", tmp_path / "rioni.log"
    data.mkdir(mode=0o700)
    (data / "format").write_text("rioni data directory, format 1\n")
    pem = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
    (data / "log-signing.key").write_text(pem.format(planted["signing-key"]))
    (tmp_path / "tls.pem").write_text(pem.format(planted["tls-key"]))
    (tmp_path / "kafka.toml").write_text(
        f'["k:9092"]\nsasl.username = "{planted["kafka-user"]}"\nsasl.password = "{planted["kafka"]}"\n'
        f'ssl.key.password = "{planted["kafka-key"]}"\n'
    )
    (tmp_path / "zookeeper.toml").write_text(f'user = "rioni"\npassword = "{planted["zookeeper"]}"\n')
    config.write_text(
        f'database = "postgresql://rioni:{planted["database"]}@db/rioni"\npseudonym_salt = "{planted["salt"]}"\n'
        f'auth_tokeninfo_local = "http://a:{planted["toml-url"]}@localhost"\n'
        'tls_certificate = "c.pem"\ntls_key = "tls.pem"\n'
        f'auth_tokeninfo_remote = "https://tokens.example.org/x?key={planted["url-of-a-setting"]}"\n'
        f'kafka = "k:9092,a:{planted["list-of-a-setting"]}@h:9092"\n'
        'kafka_options = "kafka.toml"\nzookeeper = "z:2181"\nzookeeper_options = "zookeeper.toml"\n'
    )
    log.write_text(
        "\n".join(
            [
                f"Authorization: Bearer {planted['log-header']}",
                f"can't connect to postgresql://rioni:{planted['log-url']}@db/rioni",
                json.dumps({"level": "error", "headers": {"X-Api-Key": planted["log-json"]}}),
                *(
                    f"error: a line with {each}"
                    for name, each in planted.items()
                    if not name.startswith(("log-", "storage", "metric", "flow"))
                ),
                f"rioni serve --token {planted['log-option']} --port 8080",
                f"curl --user shop:{planted['log-curl']} http://localhost:8080",
                f"error: the password is {planted['log-words']}",
                f"GET /console/login/provider?code={planted['log-code']}&state=1",
                json.dumps({"level": "error", "message": "request", "query": f"?x={planted['log-query']}"}),
                f"psycopg.OperationalError: user shop, {planted['log-traceback']}",
                pem.format(planted["log-pem"]),
            ]
        )
    )
    storage = {"bootstrap_servers": "k:9092", "sasl": {"password": planted["storage"]}, "replication_factor": 1}
    answers = sick_broker()
    answers["/storages"] = [Answer(200, [{"id": "k", "storage_type": "kafka", "kafka_configuration": storage}])]
    answers["/readyz"] = [
        Answer(
            503,
            {
                "status": "failed",
                "checks": {
                    "database": {"status": "failed", "reason": f"postgresql://a:{planted['metric']}@db refused"}
                },
            },
        )
    ]
    answers["/audit/denials"][0].body["items"][0]["flow_id"] = f"password={planted['flow']}"
    answers["/version"] = [Answer(200, {"version": f"1.0 {planted['version']}"})]
    answers["/livez"] = [
        Answer(
            503, {"status": "failed", "checks": {"threads": {"status": "failed", "detail": planted["blocked-detail"]}}}
        )
    ]
    scripted.script_paths(answers)
    monkeypatch.setattr(sys, "argv", ["rioni", "doctor", "--password", planted["argument"]])
    monkeypatch.setenv("VAULT_TOKEN", planted["environment"])
    monkeypatch.setenv("RIONI_TOKEN", planted["token"])
    monkeypatch.setenv("DB_PASSWORD", planted["broker-environment"])
    bundle = tmp_path / "bundle.tar.gz"
    arguments = ["--url", scripted.url, "--data", str(data), "--config", str(config), "--log", str(log)]
    code, out, err = run("doctor", "--json", *QUICK, *arguments, "--bundle", str(bundle))
    assert code == 1
    files = unpacked(bundle)
    assert {"results.jsonl", "metrics.txt", "settings.json", "logs/1.log", "installation.json"} <= files.keys()
    texts = {**files, "stdout": out.encode(), "stderr": err.encode()}
    found = [
        (name, secret)
        for name, data in texts.items()
        for secret in (*planted.values(), EVENT)
        if secret.encode() in data
    ]
    assert found == []
    settings = json.loads(files["settings.json"])["values"]
    assert settings["database"] == ["***", str(config)]
    assert f"error: a line with {HIDDEN}\n".encode() in files["logs/1.log"]


def unpacked(bundle):
    """The files of a bundle by name, after comparing them with its manifest."""
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    with tarfile.open(bundle) as archive:
        files = {each.name.partition("/")[2]: archive.extractfile(each).read() for each in archive.getmembers()}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    return files


def test_a_bundle_of_a_running_broker_has_no_secret_of_its_environment_and_no_event(
    run, served, client_of_served, tmp_path
):
    running, data = served
    bundle, log = tmp_path / "bundle.tar.gz", tmp_path / "rioni.log"
    log.write_text("made with salt-of-the-broker\n")
    run("doctor", *QUICK, "--url", running.url, "--data", str(data), "--log", str(log), "--bundle", str(bundle))
    files = unpacked(bundle)
    assert files["logs/1.log"] == f"made with {HIDDEN}\n".encode()
    assert not [name for name, text in files.items() if b"salt-of-the-broker" in text or b"of-a-customer" in text]
    assert "doctor.bundled" in files["event_types.json"].decode()
    assert json.loads(files["subscriptions.json"])["items"][0]["lags"]
    assert 'rioni_published_events_total{event_type="doctor.bundled"} 1.0' in files["metrics.txt"].decode()


@pytest.fixture(scope="module")
def client_of_served(served):
    """With an event, and a subscription that has not read it."""
    with Client(served[0].url) as client:
        client.event_types.create(
            EventType(
                name="doctor.bundled",
                owning_application="a",
                category="undefined",
                enrichment_strategies=[],
                schema=Schema.json({}),
            )
        )
        client.subscriptions.create(
            Subscription(owning_application="a", event_types=["doctor.bundled"], read_from="begin")
        )
        client.publish("doctor.bundled", [{"name": "of-a-customer"}])
        yield client


def test_a_bundle_never_replaces_a_file(run, sick, tmp_path):
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_text("mine")
    code, _, err = run("doctor", *QUICK, "--url", sick.url, "--bundle", str(bundle))
    assert (code, err) == (2, f"Error: {bundle} exists already; name a new file for the bundle.\n")
    assert bundle.read_text() == "mine"
    code, _, err = run(
        "doctor", *QUICK, "--url", sick.url, "--only", "blocked", "--bundle", str(tmp_path / "absent" / "b")
    )
    assert code == 2
    assert "can't be written: No such file or directory" in err
