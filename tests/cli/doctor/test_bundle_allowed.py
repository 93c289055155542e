"""The doctor shows only texts that it knows; no secret is among them, whatever surrounds it."""

import json
from itertools import product

import pytest

from rioni.cli.doctor.allow_list import FORMS, setting_is_shown
from rioni.cli.doctor.bundle import NOT_SHOWN, Allowed, with_allowed_logs
from rioni.cli.doctor.checks.connection import Reach
from rioni.cli.doctor.checks.files import LogFile
from rioni.cli.doctor.checks.machine import Server
from rioni.cli.doctor.diagnosis import CHECKS
from rioni.cli.doctor.redaction import Redactor


FACTS = {
    "reach": Reach("https://broker.example.org:8080"),
    "servers": [Server("kafka", "k1:9092")],
    "event_types": [{"name": "order.created", "owner": "shop"}],
    "logs": [LogFile("/var/log/rioni.log")],
}
SECRETS = ["Hunter2-geheim", "xyzzyplugh", "48151623", "4711", "c3d9b2f0-1111-4222-8333-944455566677", "Zm9vYmFyCg=="]
PLACES = [
    "{}",
    "the word {} stands alone",
    "rioni serve --token {}",
    "rioni serve --token={} --port 8080",
    "curl --user shop:{} https://broker.example.org:8080/event-types",
    "curl -u shop:{} x",
    "the password is {}",
    "password was {}, which is wrong",
    "passphrase = {}",
    "GET /callback?code={}&state=1",
    "redirected to https://broker.example.org:8080/login?code={}",
    "code={}",
    "https://shop:{}@broker.example.org",
    "amqp://{}@h",
    "kafka=shop:{}@k1:9092",
    "/srv/{}/secret",
    "order.created:{}",
    "user_agent={}",
    "Bearer {}",
    "('{}',)",
    "[{}]",
    "pin:{}",
    '  File "/home/{}/x.py", line 3, in f',
    "ValueError: can't parse the password {}",
    json.dumps({"level": "error", "message": "x", "anything": "{}"}).replace("{}", "{{}}").replace("{{}}", "{}"),
]


def _placed(place: str, secret: str) -> str:
    return place.replace("{}", secret)


NUMBERS_ARE_SHOWN = {"{}", "the word {} stands alone", "('{}',)", "[{}]"}
"""Places in which a short number is a mere number, and is shown."""


@pytest.fixture
def allowed():
    return Allowed(FACTS, Redactor())


@pytest.mark.parametrize(
    ("place", "secret"),
    [each for each in product(PLACES, SECRETS) if each[1] != "4711" or each[0] not in NUMBERS_ARE_SHOWN],
)
def test_no_secret_is_let_through_without_knowing_it(allowed, place, secret):
    text = _placed(place, secret)
    assert secret not in allowed.text(text)
    assert secret not in allowed.log(text)
    assert secret not in json.dumps(
        allowed.value({"reason": text, "detail": [text], "checks": {text: {"reason": text}}})
    )
    assert secret not in allowed.metrics(f"# HELP rioni_a {text}\nrioni_a{{x={json.dumps(text)}}} 1\n{text}\n")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("name", sorted({"url", "address", "checkpoint", *FORMS}))
def test_facts_are_let_through_in_their_form_only(allowed, name, secret):
    text = f"postgresql://shop:{secret}@db/x?password={secret}"
    assert secret not in json.dumps(allowed.value({name: text}))
    known = Allowed({"fact": {name: text}}, Redactor())
    assert secret not in known.text(text)


@pytest.mark.parametrize(
    "text",
    [
        *(each.looks_at for each in CHECKS.values()),
        *CHECKS,
        "Subscription of order.created (shop) is 22 hours behind: 1,883 events, 99.5% since 2026-11-25 10:00 UTC.",
        "https://broker.example.org:8080 answers, but not as a broker does",
        "/var/log/rioni.log can't be read: Permission denied.",
        "kafka k1:9092 can't be connected to: Connection refused.",
        "Raise the limit: LimitNOFILE=65536 in the unit of systemd",
        "Restore a backup: docs/operating/backup.md#restoring",
        "2026-11-25T10:00:00.123456Z [info     ] stream started [rioni.http] event_type=order.created",
        "2026-11-25T10:00:00Z [error    ] unexpected error [rioni.http.problems] method=GET error_id=4711",
        "sqlalchemy.exc.OperationalError: disk is full",
    ],
)
def test_what_is_known_is_let_through(allowed, text):
    assert allowed.text(text) == text
    assert allowed.log(text) == text


def test_a_line_in_json_becomes_one_of_text_with_its_known_members(allowed):
    line = {"timestamp": "2026-11-25T10:00:00Z", "level": "error", "logger": "rioni.http", "message": "request"}
    text = json.dumps(line | {"path": "/x", "query": "?code=abc9", "status_code": 503, "event_type": "order.created"})
    shown = "2026-11-25T10:00:00Z [error] request [rioni.http] status_code=503 event_type=order.created"
    assert allowed.log(text) == shown


def test_checks_have_reduced_lines_of_logs_only(allowed):
    facts = {"logs": [LogFile("x", "error: Hunter2")], "last_lines": [LogFile("x", "Hunter2")], "other": [1]}
    reduced = with_allowed_logs(facts, allowed)
    assert [each.text for each in (*reduced["logs"], *reduced["last_lines"])] == [f"error: {NOT_SHOWN}", NOT_SHOWN]
    assert reduced["other"] == [1]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("port", "8081", True),
        ("data", "/srv/rioni", True),
        ("kafka", "k1:9092,k2:9092", True),
        ("kafka", "shop:Hunter2@k1:9092", False),
        ("auth_tokeninfo_local", "http://a:Hunter2@h", False),
        ("auth_tokeninfo_local", "http://h/x?key=Hunter2", False),
        ("database", "postgresql://a@b/c", False),
        ("pseudonym_salt", "grains", False),
        ("no_such_setting", "x", False),
    ],
)
def test_values_of_settings_are_shown_in_the_form_of_their_kind(name, text, shown):
    assert setting_is_shown(name, text) == shown


def test_known_metrics_and_labels_are_let_through(allowed):
    text = '# TYPE rioni_a counter\nrioni_a{route="/event-types/{name}",status="200"} 7.0\nrioni_b{le="+Inf"} 1e+06\n'
    assert allowed.metrics(text) == text
