"""TLS for the listener: certificate and key are read from files, again whenever these change."""

import contextlib
import errno
import socket
import ssl
from pathlib import Path
from typing import Any, NoReturn

import structlog

from rioni.domain.errors import Unavailable


_log = structlog.get_logger("rioni.tls")

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Time, size and inode of each file; None for one that can't be read."""


class TlsSocket(ssl.SSLSocket):
    """A TLS connection with the read, write and shutdown behaviour of a plain one."""

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        """Read; raises ConnectionResetError where the client breaks the protocol."""
        try:
            return super().recv(size, flags)
        except ssl.SSLError as ex:
            raise ConnectionResetError(errno.ECONNRESET, str(ex)) from ex

    def send(self, data: Any, flags: int = 0, **options: Any) -> int:
        """Write; raises as `recv` does."""
        try:
            return super().send(data, flags, **options)
        except ssl.SSLError as ex:
            raise ConnectionResetError(errno.ECONNRESET, str(ex)) from ex

    def shutdown(self, how: int) -> None:
        """Shut down the connection below; that of `ssl` would let what is sent afterwards go out in plain text."""
        socket.socket.shutdown(self, how)

    def close(self) -> None:
        """Close, and say so first (close_notify) where that needs no waiting: clients tell it from a cut by that."""
        with contextlib.suppress(OSError, ValueError):
            self.settimeout(0)
            self.unwrap()
        super().close()


class Tls:
    """The certificate for new connections."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files; blocks.

        Args:
            certificate: PEM file with the certificate of the broker, followed by those of intermediate authorities.
            key: PEM file with its private key, without a passphrase.

        Raises:
            Unavailable: a file can't be used; the text says which, and why.
        """
        self._certificate, self._key = certificate, key
        self._seen = self._stamp()
        self._context = self._read()

    def reload(self) -> None:
        """Read the files again if they have changed; blocks. Keeps the old certificate if they can't be used."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._context = self._read()
        except Unavailable as ex:
            _log.warning("could not reload the certificate; keeping the previous one", reason=str(ex))
        else:
            _log.info("certificate reloaded", file=str(self._certificate))

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """A connection with TLS, whose handshake is still to be done; it takes the place of the given one."""
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp, (self._certificate, self._key)))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslsocket_class = TlsSocket
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        for name, path in (("tls_certificate", self._certificate), ("tls_key", self._key)):
            try:
                # Reading a pipe would block for ever.
                if not path.is_file():
                    path.stat()
                    raise Unavailable(f"{name}: {path} is not a regular file.")
                path.read_bytes()
            except OSError as ex:
                raise Unavailable(f"{name}: {path} can't be read: {ex.strerror}.") from ex
        try:
            context.load_cert_chain(self._certificate, self._key, password=_refuse_passphrase)
        except (OSError, ValueError) as ex:
            raise Unavailable(
                f"tls_certificate {self._certificate} and tls_key {self._key} can't be used: {ex}. Both are PEM files, "
                "the key belongs to the first certificate and has no passphrase."
            ) from ex
        return context


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _refuse_passphrase() -> NoReturn:
    raise ValueError("the key has a passphrase")
