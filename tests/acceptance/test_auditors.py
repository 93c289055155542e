"""The rights of users named in `audit_readers`: they read the past, by every way alike, and create nothing."""

import pytest

from tests.acceptance.conftest import problem
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens


TOKENS = {
    "auditor": {"uid": "ann", "realm": "employees", "scopes": ["uid"]},
    "other": {"uid": "joe", "realm": "employees", "scopes": ["uid"]},
    "administrator": {"uid": "stups_nakadi", "scopes": list(FULL_SCOPES)},
}
SETTINGS = ("/settings/admins", "/settings/blacklist", "/settings/features", "/storages", "/storages/default")


@pytest.fixture(scope="module", params=["basic", "realm"])
def client(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    write_tokens(folder / "tokens.toml", TOKENS)
    environment = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": request.param,
        "RIONI_AUTH_REALMS": "employees,services",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_AUDIT_READERS": "user:ann",
    }
    with running_server(folder / "data", "--workers", "1", environment=environment) as server, server.client() as http:
        yield http


def test_auditors_create_no_event_types(client):
    """Reference authorization#registry-rights."""
    body = event_type_body(name="created.by.auditor")
    refused = client.post("/event-types", json=body, headers=bearer("auditor"))
    problem(refused, 403, "Access on ADMIN event-type:created.by.auditor denied; Reason : auditors read, and create")
    assert client.get("/event-types/created.by.auditor", headers=bearer("auditor")).status_code == 404
    for number, token in enumerate(("other", "administrator")):
        made = client.post("/event-types", json=event_type_body(name=f"made{number}"), headers=bearer(token))
        assert made.status_code == 201


def test_what_the_audit_trail_shows_auditors_the_past_shows_them_too(client):
    """Reference audit#rights-to-the-past."""
    states = client.get("/audit?states=true", headers=bearer("auditor"))
    assert states.status_code == 200
    head = states.headers["Log-Position"]
    for path in SETTINGS:
        assert client.get(f"{path}?as_of={head}", headers=bearer("auditor")).status_code == 200, path
        for token, query in (("auditor", ""), ("other", f"?as_of={head}"), ("other", "")):
            assert client.get(f"{path}{query}", headers=bearer(token)).status_code == 403, (path, token, query)


def test_what_was_deleted_is_hidden_also_while_its_name_is_used_again(client):
    """Reference audit#rights-to-the-past."""
    name, secret = "used.again", "what nobody but auditors may know"
    first = event_type_body(name=name, annotations={"note": secret}, owning_application="first")
    assert client.post("/event-types", json=first, headers=bearer("administrator")).status_code == 201
    position = client.get("/audit?limit=1", headers=bearer("auditor")).headers["Log-Position"]
    assert client.delete(f"/event-types/{name}", headers=bearer("administrator")).status_code == 200
    again = event_type_body(name=name, owning_application="second")
    assert client.post("/event-types", json=again, headers=bearer("other")).status_code == 201
    paths = (
        f"/event-types/{name}",
        f"/event-types/{name}/schemas",
        f"/event-types/{name}/schemas/latest",
        "/event-types",
        "/event-type-facets",
    )
    for path in paths:
        shown = client.get(f"{path}?as_of={position}", headers=bearer("other"))
        assert shown.status_code == (404 if name in path else 200), path
        assert "first" not in shown.text, path
        assert client.get(f"{path}?as_of={position}", headers=bearer("auditor")).status_code == 200, path
