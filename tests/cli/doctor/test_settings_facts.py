from dataclasses import replace

import pytest

from rioni.cli.doctor import settings
from rioni.cli.doctor.diagnosis import Deadline, Host, NotLookedAt, Scope, Site
from rioni.client import Client
from rioni.config.settings import SETTINGS, Config


@pytest.fixture
def site(tmp_path):
    config = Config(database="postgresql://rioni:secret@db/rioni", tls_key=tmp_path / "absent.pem")
    with Client("http://127.0.0.1:1", attempts=1) as client:
        host = Host(tmp_path, config=config, sources={"database": "environment"}, origin="environment")
        yield Site("http://127.0.0.1:1", client, Scope(), Deadline(60), host=host)


def test_settings_are_shown_with_their_sources_and_without_secrets(site):
    found = settings.settings.gather(site)
    assert found.values["database"] == ("***", "environment")
    assert found.values["port"] == ("8080", "")
    assert set(found.values) == set(SETTINGS)


def test_settings_that_can_not_be_used_are_shown_with_the_reason(site, tmp_path):
    broken = replace(site, host=Host(tmp_path, error="port must be a whole number"))
    assert settings.settings.gather(broken) == settings.SettingsFacts("", "port must be a whole number")
    with pytest.raises(NotLookedAt):
        settings.config.gather(broken)
    assert settings.config.gather(site) is site.host.config


def test_files_with_secrets_have_permissions(site, tmp_path):
    key = tmp_path / "log-signing.key"
    key.write_text("")
    key.chmod(0o640)
    missing, found = settings.secret_files.gather(site)
    assert (missing.setting, missing.error) == ("tls_key", "No such file or directory")
    assert found == settings.SecretFile("log_signing_key", str(key), 0o640)
