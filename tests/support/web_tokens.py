"""An issuer of JSON FakeWeb Tokens, with its keys, and the means to forge tokens."""

import base64
import functools
import hashlib
import hmac
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rioni.domain.errors import TokensUnavailable
from rioni.storage.tokens.token_servers import Response


ISSUER = "https://issuer.example"
JWKS = "https://issuer.example/keys"
AUDIENCE = "rioni"
NOW_S = 1_700_000_000
CLAIMS = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "alice",
    "scope": "uid read",
    "realm": "employees",
    "iat": NOW_S - 10,
    "nbf": NOW_S - 10,
    "exp": NOW_S + 100,
}
ALGORITHMS = {"RS256": "RS256", "RS": "RS256", "EC": "ES256", "ED": "EdDSA", "STRANGER": "RS256", "SMALL": "RS256"}


@functools.cache
def private_key(kid: str) -> Any:
    """The private key of this id; the public key of `STRANGER` is not published."""
    match kid:
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case "ED":
            return ed25519.Ed25519PrivateKey.generate()
        case "SMALL":
            return rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
        case _:
            return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def public_pem(kid: str) -> bytes:
    """The public key in the form that a forger would take for a shared secret."""
    return private_key(kid).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(key: str, **members: Any) -> dict[str, Any]:
    """The public key as it is published."""
    algorithm = jwt.get_algorithm_by_name(ALGORITHMS[key])
    return algorithm.to_jwk(private_key(key).public_key(), as_dict=True) | {"kid": key, "use": "sig"} | members


def token(claims: dict[str, Any] = CLAIMS, *, key: str = "RS", algorithm: str | None = None, **header: Any) -> str:
    """A token that is signed with a private key."""
    header = {"kid": key} | header
    return jwt.encode(claims, private_key(key), algorithm or ALGORITHMS[key], {k: v for k, v in header.items() if v})


def raw(header: bytes | dict, claims: bytes | dict, signature: bytes | None = None, *, key: str = "RS") -> str:
    """A token of exactly these bytes, signed with one of the issuer's RSA keys unless a signature is given."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)]
    signed = b".".join(map(_encoded, parts))
    if signature is None:
        signature = jwt.get_algorithm_by_name("RS256").sign(signed, private_key(key))
    return (signed + b"." + _encoded(signature)).decode()


def hmac_signed(header: dict, claims: dict, secret: bytes) -> str:
    """A token signed by HMAC with a public value as the secret."""
    signed = b".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    return (signed + b"." + _encoded(hmac.digest(secret, signed, hashlib.sha256))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class FakeWeb:
    """Answers GET requests from a dict of URLs, and counts them."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.pages = pages
        self.asked: list[str] = []
        self.down = False

    def get(self, url: str, headers: Any) -> Response:
        self.asked.append(url)
        if self.down:
            raise TokensUnavailable("the server is down")
        if url not in self.pages:
            return Response(404, b"")
        page = self.pages[url]
        page = page(headers) if callable(page) else page
        return page if isinstance(page, Response) else Response(200, json.dumps(page).encode())
