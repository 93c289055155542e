"""Certificates for tests, made by their own authority."""

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates for localhost."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Authority of tests")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(self._name, self._key).issuer_name(self._name).add_extension(basic, critical=True)
        builder = builder.add_extension(usage, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The certificate of the authority."""
        return self._certificate.public_bytes(Encoding.PEM)

    def write(self, folder: Path) -> Path:
        """Write the certificate of the authority to a file."""
        path = folder / "authority.pem"
        path.write_bytes(self.pem)
        return path

    def context(self) -> ssl.SSLContext:
        """The TLS context of a client that trusts this authority alone."""
        return ssl.create_default_context(cadata=self.pem.decode())

    def issue(self, folder: Path, name: str = "broker", *, passphrase: str | None = None) -> tuple[Path, Path]:
        """Write a new certificate and its key; both replace existing files at once, one after the other.

        Args:
            folder: where to.
            name: of the subject, in addition to localhost and 127.0.0.1.
            passphrase: of the key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = _builder(_name(name), key).issuer_name(self._name)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(authority, critical=False).sign(self._key, hashes.SHA256())
        encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        return (
            replaced(folder / "certificate.pem", certificate.public_bytes(Encoding.PEM)),
            replaced(folder / "key.pem", secret),
        )


@cache
def authority() -> Authority:
    """The authority that all tests of a process share."""
    return Authority()


def replaced(path: Path, content: bytes) -> Path:
    """Write a file atomically."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    return fresh.replace(path)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
