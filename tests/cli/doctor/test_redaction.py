import base64
from urllib.parse import quote

import msgspec
import pytest

from rioni.cli.doctor.diagnosis import CHECKS
from rioni.cli.doctor.model import Host
from rioni.cli.doctor.redaction import Redactor, known_secrets
from rioni.config.settings import Config


SECRET = "Hunter2-geheim"
PEM = f"-----BEGIN PRIVATE KEY-----\n{'A' * 60}\n{SECRET}\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://rioni:{}@db.example.org/rioni",
        "postgresql://rioni:a@b/c#{}@db.example.org/rioni",
        "https://{}@broker.example.org",
        "jdbc:postgresql://db/x?user=a&password={}",
        "connecting as rioni:{}@db",
        "Authorization: Bearer {}",
        "authorization: basic {}",
        "{{'Authorization': 'Digest {}'}}",
        "curl -H 'authorization: token {}' http://x",
        "the header said bearer {}, which is wrong",
        "Cookie: a=b; session={}",
        "Set-Cookie: {}",
        "X-Api-Key: {}",
        "password={}",
        "PGPASSWORD={} psql",
        "RIONI_TOKEN={}",
        "RIONI_TOKEN='{} with spaces'",
        'sasl.password = "{}"',
        "ssl.key.password=x{}",
        'sasl.jaas.config=org.apache.kafka.PlainLoginModule required username="a" password="{}";',
        "dbPassword: {}",
        "password:\n  {}\n",
        "kafka:\n  - sasl.password: |\n      first\n      {}\n  user: x\n",
        "password:\n  nested:\n    deep: {}",
        "db_pass: {}",
        "clientSecret={}",
        "client_secret => {}",
        "aws_secret_access_key = {}",
        "AccountKey={};EndpointSuffix=x",
        "https://x.blob.example.org/y?sv=1&sig={}&se=2",
        "https://x/?access_token={}",
        "rioni events --token {} list",
        "rioni events --token={}",
        "mysql --password '{} x'",
        "curl -u user:{} http://x",
        '{{"level": "error", "request": {{"headers": {{"authorization": "Bearer {}"}}}}}}',
        '{{"credentials": {{"user": "x", "anything": ["{}"]}}}}',
        '{{"message": "password={}"}}',
        'body="{{\\"password\\": \\"{}\\"}}"',
        "{{'password': '{}', 'user': 'x'}}",
        "{{'secret': {{'a': '{}'}}}}",
        "token_error=1 token={}",
        "Config(database='postgresql://a:{}@b', port=1)",
        f"x\n{PEM}\ny".replace(SECRET, "{}"),
        f"log: {PEM!r}".replace(SECRET, "{}"),
        f"{'A' * 60}\n{{}}\n-----END EC PRIVATE KEY-----\nrest",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n",
    ],
)
def test_what_looks_like_a_secret_is_removed_without_knowing_it(text):
    text = text.format(SECRET)
    assert SECRET in text
    assert SECRET not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_0123456789abcdefghij",
        "glpat-0123456789abcdefghij",
    ],
)
def test_words_that_are_secrets_by_their_form_are_removed(text):
    assert text not in Redactor().text(f"before {text} after")


@pytest.mark.parametrize("form", ["{}", "x{}y", "the word {} stands alone", '{{"a": ["{}"]}}', "https://x/{}/y"])
@pytest.mark.parametrize("secret", [SECRET, 'quote"and\\', "with/slash&amp", "ünïcode ", "a b c d e f"])
def test_known_secrets_are_removed_wherever_they_stand(form, secret):
    redactor = Redactor([secret])
    encoded = msgspec.json.encode(secret).decode()[1:-1]
    for shown in (secret, encoded, quote(secret, safe=""), base64.b64encode(secret.encode()).decode()):
        assert shown not in redactor.text(form.format(shown))
    assert secret not in str(redactor.value({"a": [secret, {secret: 1}]}))


def test_short_known_secrets_are_removed_as_words_only():
    assert (
        Redactor(["rioni"]).text("rioni rioni_http_requests_total irionia") == "*** rioni_http_requests_total irionia"
    )


def test_values_under_the_name_of_a_secret_are_masked():
    value = {"password": {"a": 1}, "apiKey": "x", "tokens": ["x"], "secret": None, "token": True, "pin": 7}
    assert Redactor().value(value) == {
        "password": "***",
        "apiKey": "***",
        "tokens": "***",
        "secret": None,
        "token": True,
        "pin": 7,
    }


@pytest.mark.parametrize(
    "text",
    [
        *(each.looks_at for each in CHECKS.values()),
        'rioni_http_requests_total{method="POST",route="/tokens",status="200"} 7.0',
        "2026-11-25T10:00:00Z [info     ] a stream has started [rioni.streams] partitions=['0'] stream=4711",
        "auth_tokens: /etc/rioni/tokens.toml can't be read",
        '{"auth_tokens":["/etc/rioni/tokens.toml","environment"]}',
        "The broker answers 401 to this token. Full authentication is required",
        "— witness oQnqEOeR8WFbwTmIOMUeFtPdNjNbVSRFXRuVv5yR1QzWQq1mjPnvXSGhLLdEY2v5bbZoEbYHEcMkzl3nPs0fAA==",
        "compass=north design=new config=x",
        "auth_tokens:\n  a: 1\nb: 2\n",
    ],
)
def test_what_is_no_secret_stays(text):
    assert Redactor(["unrelated-secret"]).text(text) == text


def test_secrets_are_learnt_of_the_environment_settings_and_their_files(tmp_path):
    kafka, zookeeper, key = tmp_path / "kafka.toml", tmp_path / "zookeeper.toml", tmp_path / "key.pem"
    kafka.write_text('["k1:9092"]\nsasl.username = "rioni"\nsasl.password = "kafka-secret"\n')
    zookeeper.write_text('\ufeffuser = "rioni"\npassword = "zookeeper-secret"\n')
    key.write_text("-----BEGIN PRIVATE KEY-----\nbGluZSBvZiBhIGtleQ==\n-----END PRIVATE KEY-----\n")
    (tmp_path / "log-signing.key").write_text("-----BEGIN PRIVATE KEY-----\nc2lnbmluZw==\n-----END PRIVATE KEY-----\n")
    config = Config(
        database="postgresql://rioni:p%40ss-word@db/rioni",
        pseudonym_salt="grains",
        kafka_options=kafka,
        zookeeper_options=zookeeper,
        tls_key=key,
        auth_tokeninfo_local="https://a:info-secret@tokens.example.org",
    )
    found = known_secrets("of-the-user", Host(tmp_path, config=config), {"VAULT_TOKEN": "vault", "HOME": "home"})
    assert found >= {
        "of-the-user",
        "vault",
        "kafka-secret",
        "zookeeper-secret",
        "bGluZSBvZiBhIGtleQ==",
        "c2lnbmluZw==",
        "p%40ss-word",
        "p@ss-word",
        "grains",
        "info-secret",
    }
    assert not found & {"home", "rioni", "salt"}


def test_long_lines_are_cut():
    redactor = Redactor([SECRET])
    for text in (
        "a" * 1_000_000,
        "token" * 200_000,
        " " * 1_000_000,
        "-" * 1_000_000,
        "token=" * 100_000,
        "a://" * 100_000,
        "x_token=1 " * 100_000,
        '"' * 200_000,
        "\\" * 200_000,
    ):
        assert len(redactor.text(text)) < 20_000
