"""The settings: the sources of their values, and the errors for wrong ones."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rioni import __version__
from rioni.config.loading import RENAMED, load
from rioni.config.proxies import BASE_PATH_EXPECTED
from rioni.config.settings import SETTINGS, Config, ConfigError
from rioni.domain.limits import Limits
from rioni.storage.kafka import factory as kafka_options
from rioni.storage.tokens.tokens_file import parsed
from rioni.storage.zookeeper import factory as zookeeper_options
from tests.support.tables import rows


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def test_sources_take_precedence_in_the_order_command_line_environment_file_default():
    Path("rioni.toml").write_text("port = 1\nhost = 'file'\nworkers = 3\n")
    loaded = load({"port": 3, "host": None}, environ={"RIONI_PORT": "2", "RIONI_HOST": "environment"})
    assert (loaded.config.port, loaded.config.host, loaded.config.workers) == (3, "environment", 3)
    assert loaded.config.event_bytes_max == 999_000
    assert [loaded.sources[name] for name in ("port", "host", "workers", "event_bytes_max")] == [
        "command line",
        "environment",
        "rioni.toml",
        "default",
    ]


def test_the_file_is_named_by_option_or_environment_or_in_the_working_directory(tmp_path: Path):
    for name, port in (("rioni.toml", 1), ("of-environment.toml", 2), ("named.toml", 3)):
        (tmp_path / name).write_text(f"port = {port}")
    environ = {"RIONI_CONFIG": "of-environment.toml"}
    assert load(environ={}).config.port == 1
    assert load(environ=environ).config.port == 2
    assert load(environ=environ, file=Path("named.toml")).config.port == 3


def test_the_file_is_optional_but_a_named_one_must_exist():
    assert load(environ={}).config == Config()
    with pytest.raises(ConfigError, match=r"There is no configuration file absent\.toml"):
        load(environ={}, file=Path("absent.toml"))
    with pytest.raises(ConfigError, match=r"There is no configuration file absent\.toml"):
        load(environ={"RIONI_CONFIG": "absent.toml"})


def test_an_empty_variable_counts_as_not_set():
    assert load(environ={"RIONI_PORT": "", "RIONI_CONFIG": ""}).config.port == 8080


@pytest.mark.parametrize(
    ("toml", "environ", "message"),
    [
        ("prot = 1", {}, "rioni.toml: prot is not a setting; did you mean port?"),
        ("", {"RIONI_PROT": "1"}, "environment: RIONI_PROT is not a setting; did you mean RIONI_PORT?"),
        (
            "",
            {"RIONI_XYZZYX": "1"},
            "environment: RIONI_XYZZYX is not a setting; `rioni config show` lists all settings.",
        ),
        ("port = 99999", {}, "rioni.toml: port must be a whole number from 0 to 65535, not 99999"),
        ("port = true", {}, "rioni.toml: port must be a whole number from 0 to 65535, not True"),
        ("data = 1", {}, "rioni.toml: data must be a path, not 1"),
        ("[port]\nx = 1", {}, "rioni.toml: port must be a whole number from 0 to 65535, not {'x': 1}"),
        ("", {"RIONI_WORKERS": "two"}, "environment: RIONI_WORKERS must be a whole number from 1 to 256, not 'two'"),
        (
            "",
            {"RIONI_DEFAULT_ADMIN": "me"},
            "environment: RIONI_DEFAULT_ADMIN must be a text like data_type:value, not 'me'",
        ),
        ("allow_unauthenticated = 1", {}, "rioni.toml: allow_unauthenticated must be true or false, not 1"),
        (
            "",
            {"RIONI_ALLOW_UNAUTHENTICATED": "yes"},
            "environment: RIONI_ALLOW_UNAUTHENTICATED must be true or false, not 'yes'",
        ),
        (
            "allowed_hosts = 'broker:8080'",
            {},
            "rioni.toml: allowed_hosts must be names of hosts without ports, separated by commas, not 'broker:8080'",
        ),
        (
            "trusted_proxies = '10.1.0.1/16'",
            {},
            "settings: trusted_proxies has an item that is neither an address nor a network such as 10.1.0.0/16",
        ),
        (
            "",
            {"RIONI_BASE_PATH": "/console"},
            f"environment: RIONI_BASE_PATH must be {BASE_PATH_EXPECTED}, not '/console'",
        ),
        ("retention_min_ms = 400_000_000", {}, "settings: retention_min_ms is above retention_default_ms"),
    ],
)
def test_errors_name_the_setting_its_source_and_valid_values(toml, environ, message):
    Path("rioni.toml").write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOWED_ORIGINS", "null"),
        ("ALLOWED_ORIGINS", "*"),
        ("ALLOWED_ORIGINS", "https://app.example.org/path"),
        ("ALLOWED_ORIGINS", "https://user@app.example.org"),
        ("ALLOWED_ORIGINS", "https://a.example, https://b.example"),
        ("ALLOWED_HOSTS", "https://broker.example.org"),
        ("ALLOWED_HOSTS", "2001:db8::1"),
        ("ALLOWED_HOSTS", ","),
        ("BASE_PATH", "broker"),
        ("BASE_PATH", "/"),
        ("BASE_PATH", "/broker/"),
        ("BASE_PATH", "//broker"),
        ("BASE_PATH", "/a//b"),
        ("BASE_PATH", "/a/.."),
        ("BASE_PATH", "/./a"),
        ("BASE_PATH", "/a b"),
        ("BASE_PATH", "/a%2Fb"),
        ("BASE_PATH", "/a?b"),
        ("BASE_PATH", "/a#b"),
        ("BASE_PATH", "/a\n"),
        ("BASE_PATH", "/a\x7f"),
        ("BASE_PATH", "/ä"),
        ("BASE_PATH", "https://example.org/broker"),
        ("BASE_PATH", "/console"),
        ("BASE_PATH", "/event-types/a"),
        ("BASE_PATH", "/" + "a" * 200),
        ("TRUSTED_PROXIES", "proxy.example.org"),
        ("TRUSTED_PROXIES", "10.0.0.1;10.0.0.2"),
        ("TRUSTED_PROXIES", "10.0.0.1, 10.0.0.2"),
        ("TRUSTED_PROXIES", "*"),
    ],
)
def test_what_requests_and_proxies_may_say_is_checked_when_it_is_read(name, value):
    with pytest.raises(ConfigError, match=f"RIONI_{name} must be"):
        load(environ={f"RIONI_{name}": value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOWED_ORIGINS", "https://app.example.org,http://localhost:3000,http://[::1]:3000"),
        ("ALLOWED_HOSTS", "broker.example.org,10.0.0.1,[2001:db8::1]"),
        ("BASE_PATH", "/broker"),
        ("BASE_PATH", "/consoles/.well-known/a~b_C-9/console"),
        ("BASE_PATH", "/" + "a" * 199),
        ("TRUSTED_PROXIES", "10.0.0.1,10.1.0.0/16,2001:db8::1,fd00::/8"),
    ],
)
def test_lists_are_separated_by_commas_and_a_path_has_segments(name, value):
    assert getattr(load(environ={f"RIONI_{name}": value}).config, name.lower()) == value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False)])
def test_booleans_are_written_as_in_toml(text, value):
    Path("rioni.toml").write_text("allow_unauthenticated = true")
    assert load(environ={}).config.allow_unauthenticated is True
    config = load(environ={"RIONI_ALLOW_UNAUTHENTICATED": text}).config
    assert config.allow_unauthenticated is value
    assert SETTINGS["allow_unauthenticated"].show(value) == text.lower()


def test_every_error_is_named_at_once():
    Path("rioni.toml").write_text("prot = 1")
    with pytest.raises(ConfigError) as caught:
        load({"port": -1}, environ={"RIONI_HOSST": "x"})
    assert str(caught.value).splitlines() == [
        "rioni.toml: prot is not a setting; did you mean port?",
        "environment: RIONI_HOSST is not a setting; did you mean RIONI_HOST?",
        "command line: --port must be a whole number from 0 to 65535, not -1",
    ]


MARK = "\ufeff"
FILES = {
    "settings": (lambda path: load(file=path, environ={}).config.port, "port = 8081", 8081),
    "tokens": (
        lambda path: [each.uid for each in parsed(path.read_bytes()).values()],
        f'[[token]]\nsha256 = "{"0" * 64}"\nuid = "alice"',
        ["alice"],
    ),
    "Kafka": (
        kafka_options.read_options,
        "['a:9092']\n'ssl.ca.location' = 'ca.pem'",
        {frozenset(["a:9092"]): {"ssl.ca.location": "ca.pem"}},
    ),
    "ZooKeeper": (
        lambda path: zookeeper_options.read_options(path).ca,
        "ca = 'ca.pem'",
        "ca.pem",
    ),
}


@pytest.mark.parametrize("file", FILES)
def test_a_byte_order_mark_as_editors_write_it_is_ignored(tmp_path, file):
    read, text, found = FILES[file]
    path = tmp_path / "file.toml"
    path.write_text(f"{MARK}{text}\r\n", encoding="utf-8")
    assert read(path) == found


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(content):
    Path("rioni.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^rioni\.toml is not a TOML file: "):
        load(environ={})


def test_a_file_that_cannot_be_read_is_named():
    Path("rioni.toml").mkdir()
    with pytest.raises(ConfigError, match=r"^The configuration file rioni\.toml can't be read: Is a directory\.$"):
        load(environ={})


def test_a_secret_is_never_shown():
    secret = "postgresql://rioni:sesame@localhost/rioni"
    config = load(environ={"RIONI_DATABASE": secret}).config
    assert config.database == secret
    assert "sesame" not in repr(config)
    assert SETTINGS["database"].show(config.database) == "***"
    Path("rioni.toml").write_text("database = ['sesame']")
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert str(caught.value) == "rioni.toml: database must be a text"


@given(st.data())
def test_every_number_within_the_bounds_is_accepted_as_text_too(data):
    setting = data.draw(st.sampled_from([setting for setting in SETTINGS.values() if setting.kind is int]))
    most = setting.meta.le if setting.meta.le is not None else 10**12
    value = data.draw(st.integers(setting.meta.ge, most))
    assert setting.parse(str(value)) == setting.parse(value) == value
    for beyond in (setting.meta.ge - 1, *([] if setting.meta.le is None else [most + 1])):
        with pytest.raises(ConfigError):
            setting.parse(beyond)


def test_every_setting_is_used():
    root = Path(__file__).parents[2] / "rioni"
    code = "".join(
        path.read_text() for path in root.rglob("*.py") if path.name not in ("config.py", "contradictions.py")
    )
    read = set(re.findall(r"config\.([a-z_]+)", code)) | set(Limits.__struct_fields__)
    assert not set(SETTINGS) - read


def test_every_setting_has_a_description_and_a_default_within_its_bounds():
    config = Config()
    for setting in SETTINGS.values():
        default = getattr(config, setting.name)
        assert setting.parse(default) == default
        assert setting.description.endswith(".")


@pytest.mark.parametrize(
    ("setting", "value"),
    rows(
        ("partitions per subscription", "subscription_partitions_max", 100),
        ("low-level connections", "streams_per_partition_max", 5),
        ("memory per stream", "stream_memory_bytes_max", 50_000_000),
        ("stream age", "stream_timeout_max_s", 4_200),
        ("commit timeout", "commit_timeout_max_s", 60),
        ("stream_timeout", "stream_timeout_default_s", 3_600),
        ("stream_timeout, at random", "stream_timeout_jitter_s", 600),
        ("partitions of an event type", "partitions_max", 8),
    ),
)
def test_the_documented_limits_of_consumers_are_the_defaults(setting, value):
    assert getattr(Config(), setting) == value


def test_former_names_of_settings_are_read_with_a_warning():
    environ = {"RIONI_SHUTDOWN_S": "7", "RIONI_ADMIN_DEFAULT": "user:a", "RIONI_DEFAULT_ADMIN": "user:b"}
    with capture_logs() as logs:
        config = load(environ=environ).config
    assert (config.shutdown_timeout_s, config.default_admin) == (7, "user:b")
    assert [(each["former"], each["name"]) for each in logs] == [
        ("RIONI_SHUTDOWN_S", "RIONI_SHUTDOWN_TIMEOUT_S"),
        ("RIONI_ADMIN_DEFAULT", "RIONI_DEFAULT_ADMIN"),
    ]


def test_every_former_name_refers_to_a_setting():
    assert set(RENAMED.values()) <= set(SETTINGS)
    assert not set(RENAMED) & set(SETTINGS)


def test_former_names_of_settings_are_read_until_version_0_2():
    assert not RENAMED or __version__.startswith("0.1.")
