"""The private key that signs checkpoints: a file that only its owner may read, made once."""

import contextlib
import os
import stat
from pathlib import Path
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from rioni.domain.errors import Unavailable


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a key from a PEM file, which is made if it is missing; several processes may do so at once. Blocks.

    Raises:
        Unavailable: the file can't be read or written, holds no Ed25519 key, or others may read it.
    """
    try:
        if not path.exists():
            _create(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise Unavailable(f"The signing key {path} can be read by others. Run: chmod 600 {path}")
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as ex:
        raise Unavailable(f"The signing key {path} can't be read or made: {ex.strerror}.") from ex
    except (ValueError, TypeError) as ex:
        raise Unavailable(f"The signing key {path} is not an unencrypted private key in PEM.") from ex
    if not isinstance(key, Ed25519PrivateKey):
        raise Unavailable(f"The signing key {path} is not an Ed25519 key. Make one: openssl genpkey -algorithm ed25519")
    return key


def _create(path: Path) -> None:
    text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    beside = path.with_name(f".{path.name}-{uuid4()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # Another process may have been faster: then its key stays.
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
