"""The doctor shows only facts that its table names; no secret is among them, whatever surrounds it."""

import json
from collections.abc import Mapping
from types import UnionType
from typing import get_args, get_origin

import msgspec
import pytest

from rioni.cli.doctor.connection import Access, Reach
from rioni.cli.doctor.diagnosis import (
    Deadline,
    Host,
    Missing,
    Scope,
    Site,
    all_checks,
    all_sources,
    chosen,
    gather,
    needed,
    run,
)
from rioni.cli.doctor.disk import LogFile
from rioni.cli.doctor.metrics import MetricSamples, SampledSeries
from rioni.cli.doctor.settings import NamedServer, SettingsFacts
from rioni.cli.doctor.shown import EACH, FACTS, HIDDEN, INTERNAL, LOG, SECRET, SETTINGS, TEXT, Shown
from rioni.client import Client
from rioni.config import settings as config_settings
from rioni.config.settings import Config


FACTS_OF_A_SITE = {
    "reach": Reach("https://broker.example.org:8080"),
    "servers": [NamedServer("kafka", "k1:9092")],
    "unused": ["order.created", "shop"],
    "logs": [LogFile("/var/log/rioni.log")],
}
SECRETS = ["Hunter2-geheim", "xyzzyplugh", "48151623", "4711", "c3d9b2f0-1111-4222-8333-944455566677", "Zm9vYmFyCg=="]
PLACES = [
    "{}",
    "the word {} stands alone",
    "rioni serve --token {}",
    "rioni serve --token={} --port 8080",
    "curl --user shop:{} https://broker.example.org:8080/event-types",
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
    "Authorization: Basic {}",
    "Bearer {}",
    "Cookie: a=b; session={}",
    "('{}',)",
    "pin:{}",
    "db_pass: |\n  first\n  {}\n",
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    '  File "/home/{}/x.py", line 3, in f',
    "ValueError: can't parse the password {}",
    '{{"level": "error", "message": "x", "anything": "{}", "headers": {{"authorization": "{}"}}}}',
    'body="{{\\"password\\": \\"{}\\"}}"',
]


@pytest.fixture
def shown():
    reduced = Shown()
    reduced.facts(FACTS_OF_A_SITE)
    return reduced


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
def test_no_secret_is_in_a_sentence_or_a_log(shown, place, secret):
    text = place.replace("{}", secret).replace("{{", "{").replace("}}", "}")
    assert secret in text
    assert secret not in shown.value(text, TEXT)
    assert secret not in shown.value(text, LOG)


def rules(rule, path=()):
    """The forms of a rule, with the path of members that leads to each."""
    if isinstance(rule, Mapping):
        for name, each in rule.items():
            yield from rules(each, (*path, name))
    elif isinstance(rule, list):
        for place, each in enumerate(rule):
            yield from rules(each, (*path, place))
    else:
        yield path, rule


@pytest.mark.parametrize("place", ["postgresql://shop:{}@db/x?password={}", "https://x.example.org/?key={}", "is {} !"])
def test_a_fact_is_shown_in_its_form_only(place):
    forms = [(name, *each) for name, rule in FACTS.items() for each in rules(rule)]
    text = place.replace("{}", "Hunter2")
    assert [(name, path) for name, path, form in forms if "Hunter2" in Shown().value(text, form)] == []


def test_each_source_has_facts_in_the_table():
    assert set(FACTS) | INTERNAL == set(all_sources())


def kinds(kind, rule, path):
    """Compare the members of a rule with those of the type of the fact."""
    arguments = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) in (list, UnionType):
        yield from kinds(arguments[0], rule, path)
    elif isinstance(rule, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {each.name: each.type for each in msgspec.structs.fields(kind)}
        yield from (f"{path}.{name}" for name in rule if name not in fields)
        for name in rule.keys() & fields.keys():
            yield from kinds(fields[name], rule[name], f"{path}.{name}")


def test_the_table_names_members_that_exist():
    unknown = [each for name, rule in FACTS.items() for each in kinds(all_sources()[name].gives, rule, name)]
    assert unknown == []
    assert set(SETTINGS) <= set(config_settings.SETTINGS)


def test_where_a_setting_comes_from_is_shown(shown):
    facts = SettingsFacts("process 4711", values={"port": ("8080", "command line"), "host": ("", "/etc/rioni.toml")})
    assert shown.facts({"settings": facts})["settings"] == facts


def test_a_secret_setting_has_no_form_but_its_mask():
    secret = {name for name, each in config_settings.SETTINGS.items() if each.secret}
    assert {name for name, form in SETTINGS.items() if form is SECRET} == secret


class NewFact(Access, frozen=True):
    """Facts with a member that the table does not name."""

    new: str = "harmless"


def test_a_new_fact_is_hidden_until_the_table_names_it(shown):
    facts = {"access": NewFact("0.1.1"), "new": ["harmless"], "settings": {"values": {"new": ("1", "x")}}}
    reduced = shown.facts(facts)
    assert (reduced["access"].client, reduced["access"].new) == ("0.1.1", HIDDEN)
    assert reduced["new"] == HIDDEN
    assert reduced["settings"] == {"values": {HIDDEN: HIDDEN}}


KINDS = [
    "Hunter2:geheim@h",
    "https://shop:Hunter2@h.example.org/x",
    "http://h.example.org/x?key=Hunter2",
    "postgresql://shop:Hunter2@db/rioni",
    "Bearer Hunter2",
    "password = Hunter2",
    "-----BEGIN PRIVATE KEY-----\nHunter2\n-----END PRIVATE KEY-----\n",
    '{"password": "Hunter2"}',
]
TEXTS = {name: each.kind for name, each in config_settings.SETTINGS.items() if each.kind not in {int, bool}}


@pytest.mark.parametrize("secret", KINDS)
def test_no_secret_of_a_setting_comes_out(tmp_path, monkeypatch, secret):
    monkeypatch.setattr("rioni.cli.doctor.settings.CONNECT_S", 0.01)
    checks = [each for each in all_checks().values() if "config" in each.needs or "settings" in each.needs]
    checks += chosen(["files-with-secrets", "reachable-servers", "broker-certificate-file"])
    config = msgspec.structs.replace(Config(), **{name: kind(secret) for name, kind in TEXTS.items()})
    host = Host(tmp_path, config=config, sources=dict.fromkeys(TEXTS, secret), origin=secret, error=secret)
    with Client("http://127.0.0.1:1", attempts=1) as client:
        site = Site("http://127.0.0.1:1", client, Scope(), Deadline(60), host=host)
        facts = Shown().facts(gather(site, needed(checks)))
    results = run(checks, facts)
    assert {"cluster-settings", "files-with-secrets"} <= {each.check for each in results if each.findings}
    found = msgspec.json.encode([results, {name: each for name, each in facts.items() if name not in INTERNAL}])
    assert "Hunter2" not in found.decode()


@pytest.mark.parametrize(
    "text",
    [
        "Subscription of order.created (shop) is 22 hours behind: 1,883 events, 99.5% since 2026-11-25T10:00:00Z.",
        "https://broker.example.org:8080 answers, but not as a broker does",
        "https://broker.example.org:8080 does not answer: [Errno 111] Connection refused",
        "/var/log/rioni.log can't be read: Permission denied.",
        "kafka k1:9092 can't be connected to: Connection refused.",
        "sqlalchemy.exc.OperationalError: disk is full",
        "Rioni serves http://127.0.0.1:18099 with 1 worker",
        "The command failed with exit code 1.",
    ],
)
def test_known_words_names_and_short_numbers_are_shown(shown, text):
    assert shown.text(text) == text


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-25T10:00:00.123456Z [info     ] stream started [rioni.http] event_type=order.created",
        "2026-11-25T10:00:00Z [error    ] unexpected error [rioni.http.problems] method=GET error_id=4711",
    ],
)
def test_known_members_of_a_log_are_shown(shown, line):
    assert shown.value(line, LOG) == line


def test_a_line_in_json_becomes_one_of_text_with_its_known_members(shown):
    line = {"timestamp": "2026-11-25T10:00:00Z", "level": "error", "logger": "rioni.http", "message": "request"}
    text = json.dumps(line | {"path": "/x", "query": "?code=abc9", "status_code": 503, "event_type": "order.created"})
    expected = "2026-11-25T10:00:00Z [error] request [rioni.http] status_code=503 event_type=order.created"
    assert shown.value(text, LOG) == expected


def test_the_place_of_an_error_is_shown_by_the_module(shown):
    line = '  File "/opt/Hunter2/lib/rioni/http/app.py", line 3141, in f'
    assert shown.value(line, LOG) == '  File "rioni/http/app.py", line 3141'


def test_the_reason_of_missing_facts_is_a_sentence(shown):
    reduced = shown.facts({"access": Missing("the password is Hunter2", wanted=False)})["access"]
    assert reduced == Missing(f"the password is {HIDDEN}", wanted=False)


def test_metrics_have_known_labels_only(shown):
    labels = {"route": "/event-types/{name}", "status": "200", "password": "Hunter2", "pool": "a b"}
    metrics = MetricSamples([SampledSeries("rioni_a", labels, 7, 0), SampledSeries("Hunter2", {}, 1, 0)], 3)
    known, unknown = shown.facts({"metrics": metrics})["metrics"].series
    assert known.labels == {"route": "/event-types/{name}", "status": "200", HIDDEN: HIDDEN, "pool": HIDDEN}
    assert unknown.name == HIDDEN


def test_names_of_any_kind_are_shown_in_their_form(shown):
    rule = {EACH: FACTS["installation"]["packages"][EACH]}
    assert shown.value({"gevent": "26.9.0", "a b": "1"}, rule) == {"gevent": "26.9.0", HIDDEN: HIDDEN}
