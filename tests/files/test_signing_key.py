import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from rioni.domain.errors import Unavailable
from rioni.domain.transparency.log_keys import SigningKey
from rioni.files.signing_key import load_key, load_signing_key, replace_key


def raw(key) -> bytes:
    return key.private_bytes_raw()


def test_a_missing_key_is_made_once_for_all_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "log-signing.key"
    with ThreadPoolExecutor(8) as pool:
        keys = {raw(key) for key in pool.map(load_key, [path] * 8)}
    assert keys == {raw(load_key(path))}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "log-signing.key"
    load_key(path)
    path.chmod(0o640)
    with pytest.raises(Unavailable, match="chmod 600"):
        load_key(path)


def test_what_is_no_key_of_ed25519_is_refused(tmp_path):
    path = tmp_path / "log-signing.key"
    for content in (
        b"",
        b"text",
        generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        generate_private_key(SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
        ),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(Unavailable, match=r"openssl genpkey|not an unencrypted private key"):
            load_key(path)
    with pytest.raises(Unavailable, match="can't be read or made"):
        load_key(tmp_path / "missing" / "log-signing.key")


def test_a_key_is_replaced_by_one_that_says_how_it_follows(tmp_path):
    path = tmp_path / "log-signing.key"
    load_key(path)
    for key in (
        SigningKey(Ed25519PrivateKey.generate(), signature="— example.com/log AAAA"),
        SigningKey(Ed25519PrivateKey.generate(), lost="example.com/log+00000000+AAAA"),
    ):
        replace_key(path, key)
        found = load_signing_key(path)
        assert (raw(found.private), *found[1:]) == (raw(key.private), *key[1:])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(Unavailable, match="can't be written"):
        replace_key(tmp_path / "missing" / "key", key)
