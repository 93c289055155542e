"""The private key that signs checkpoints: a file that only its owner may read, made once.

It is PEM. Above a key that follows another one, a line shows how: `Signed-By-Predecessor:` with the signature
of the key before, or `Replaces-Lost-Key:` with the verifier key of the key before.
"""

import contextlib
import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from rioni.domain.errors import Unavailable
from rioni.domain.transparency.log_keys import SigningKey
from rioni.files.plain import file_errors, fsync_directory, read_file


SIGNED, LOST = "Signed-By-Predecessor: ", "Replaces-Lost-Key: "


def load_key(path: Path, *, create: bool = True) -> Ed25519PrivateKey:
    """Read a key; see `load_signing_key`."""
    return load_signing_key(path, create=create).private


def load_signing_key(path: Path, *, create: bool = True) -> SigningKey:
    """Read a key from a PEM file; several processes may do so at once. Blocks.

    Args:
        path: the path of the file.
        create: whether to make it if it is missing.

    Raises:
        Unavailable: the file can't be read or written, is missing, holds no Ed25519 key, or others may read it.
    """
    try:
        if not path.exists():
            if not create:
                raise Unavailable(
                    f"The signing key {path} is missing. Copy it back from the place where you keep it; if it is lost: "
                    "`rioni audit rotate-key --lost`."
                )
            _create(path)
        data = read_file(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise Unavailable(f"The signing key {path} can be read by others. Run: chmod 600 {path}")
        key = load_pem_private_key(data, None)
    except OSError as ex:
        raise Unavailable(f"The signing key {path} can't be read or made: {ex.strerror}.") from ex
    except (ValueError, TypeError) as ex:
        raise Unavailable(
            f"The signing key {path} is not an unencrypted private key in PEM. Put the right "
            "file back; if it is lost: `rioni audit rotate-key --lost`."
        ) from ex
    if not isinstance(key, Ed25519PrivateKey):
        raise Unavailable(f"The signing key {path} is not an Ed25519 key. Make one: openssl genpkey -algorithm ed25519")
    lines = data.decode(errors="replace").splitlines()
    return SigningKey(key, *(_field(lines, name) for name in (SIGNED, LOST)))


def replace_key(path: Path, key: SigningKey) -> None:
    """Write a key, replacing another one, at once or not at all. Blocks.

    Keys that were written by processes that died before they were in place are removed.

    Raises:
        Unavailable: the file can't be written.
    """
    with file_errors(f"The signing key {path} can't be written"):
        for abandoned in path.parent.glob(f".{glob.escape(path.name)}-*"):
            abandoned.unlink(missing_ok=True)
        with _written(path, key) as beside:
            beside.replace(path)
            fsync_directory(path.absolute().parent)


def _create(path: Path) -> None:
    # Another process may have been faster: then its key stays.
    with _written(path, SigningKey(Ed25519PrivateKey.generate())) as beside, contextlib.suppress(FileExistsError):
        os.link(beside, path)


@contextlib.contextmanager
def _written(path: Path, key: SigningKey) -> Iterator[Path]:
    """Write a key to a temporary file next to the given one; it is gone afterwards."""
    text = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    above = "".join(f"{name}{value}\n" for name, value in ((SIGNED, key.signature), (LOST, key.lost)) if value)
    beside = path.with_name(f".{path.name}-{uuid4()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(above.encode() + text)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _field(lines: list[str], name: str) -> str:
    return next((line.removeprefix(name) for line in lines if line.startswith(name)), "")
