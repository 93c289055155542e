import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rioni.cli.broker.witnessing import ForkedLog, WitnessState, witness
from rioni.client import Client
from rioni.config.settings import Config
from rioni.domain.errors import Malformed, Unavailable
from rioni.domain.transparency.checkpoint import COSIGNATURE, parse_note, verified, verifier_of
from rioni.files.locks import try_lock
from rioni.operations.checkpoints import rotate_key
from tests.support.server import running_server


KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
NAME = "example.com/witness"
VERIFIER = verifier_of(NAME, KEY, COSIGNATURE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A broker that knows the witness."""
    environment = {"RIONI_LOG_WITNESSES": str(VERIFIER)}
    with running_server(tmp_path_factory.mktemp("data"), "--workers", "1", environment=environment) as running:
        yield running


def seen(server, file, log_key=None):
    with Client(server.url) as client:
        return witness(client, file, NAME, KEY, log_key)


def test_a_witness_cosigns_a_log_that_is_extended(server, tmp_path):
    """Reference transparency-log#witnesses."""
    file = tmp_path / "witness"
    first = seen(server, file)
    assert (first.before, first.accepted) == (0, True)
    with server.client() as client:
        shown = parse_note(client.get("/log/checkpoint").content)
        assert verified(shown, [VERIFIER])
        assert client.put("/settings/blacklist/CONSUMER_APP/one").status_code == 204
        assert verified(parse_note(client.get("/log/checkpoint").content), [VERIFIER]) == {}
        again = seen(server, file)
        assert (again.before, again.accepted) == (first.checkpoint.size, True)
        assert again.checkpoint.size > first.checkpoint.size
        assert verified(parse_note(client.get("/log/checkpoint?cosigned=true").content), [VERIFIER])
    assert seen(server, file).before == again.checkpoint.size


@pytest.mark.parametrize("change", ["root", "longer", "name"])
def test_a_witness_refuses_a_fork_and_keeps_its_state(server, tmp_path, change):
    file = tmp_path / "witness"
    with server.client() as client:
        client.put(f"/settings/blacklist/CONSUMER_APP/{change}")
        found = seen(server, file)
        client.put(f"/settings/blacklist/CONSUMER_APP/{change}-2")
    state = msgspec.json.decode(file.read_bytes(), type=WitnessState)
    size, root = found.checkpoint.size, found.checkpoint.root
    other = {
        "root": found.checkpoint._replace(root=bytes(32)),
        "longer": found.checkpoint._replace(size=size + 1_000),
        "name": found.checkpoint._replace(origin="other"),
    }[change]
    assert root != bytes(32)
    forged = state.checkpoint.replace(str(found.checkpoint), str(other))
    file.write_bytes(msgspec.json.encode(WitnessState(state.log_key, forged)))
    before = file.read_bytes()
    with pytest.raises(ForkedLog):
        seen(server, file)
    assert file.read_bytes() == before


def test_a_witness_refuses_another_key_and_a_state_that_it_can_not_read(server, tmp_path):
    file = tmp_path / "witness"
    with pytest.raises(Malformed, match="is not signed by"):
        seen(server, file, str(verifier_of("other", KEY)))
    assert not file.exists()
    file.write_text("{}")
    with pytest.raises(Unavailable, match="state of a witness"):
        seen(server, file)


def test_a_witness_follows_a_key_that_was_signed_by_the_one_that_it_knows(tmp_path):
    """Reference transparency-log#rotation-of-the-key."""
    with running_server(tmp_path / "data") as server:
        config, first = Config(data=tmp_path / "data"), seen(server, tmp_path / "witness")
        assert first.new_key is None
        trusted = msgspec.json.decode((tmp_path / "witness").read_bytes(), type=WitnessState).log_key
        keys = [str(rotate_key(config, lost=False))]
        with server.client() as client:
            client.get("/log/checkpoint")
            keys.append(str(rotate_key(config, lost=False)))
            client.get("/log/checkpoint")
            assert [each["verifier"] for each in client.get("/log/keys").json()["keys"]] == [trusted, *keys]
        again = seen(server, tmp_path / "witness")
        assert (again.before, again.new_key) == (first.checkpoint.size, keys[-1])
        assert seen(server, tmp_path / "witness").new_key is None
        assert seen(server, tmp_path / "another", trusted).before == 0
        lost = str(rotate_key(config, lost=True))
        with pytest.raises(Malformed, match="lost the key"):
            seen(server, tmp_path / "witness")
        assert seen(server, tmp_path / "witness", lost).before == again.checkpoint.size


def test_two_witnesses_with_one_state_are_refused(server, tmp_path):
    """Each could cosign another fork."""
    with (tmp_path / ".witness-lock").open("w") as held:
        assert try_lock(held.fileno())
        with pytest.raises(Unavailable, match="Another witness uses"):
            seen(server, tmp_path / "witness")
    assert seen(server, tmp_path / "witness").accepted
