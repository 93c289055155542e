import contextlib
import json
from functools import partial

import pytest

from rioni.domain.access.authorization import TokenPolicy
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.host import CLIENT
from rioni.storage.tokens.issuers import Issuer, read_issuers
from rioni.storage.tokens.jwt_tokens import FETCH_AGAIN_S, FETCH_FOR_ANY_S, FRESH_S, STALE_S, WebTokens
from rioni.storage.tokens.sources import CachedTokens
from tests.contracts.tokens import ALICE, RemoteTokensContract, TokensContract
from tests.support.clock import ManualClock
from tests.support.tables import rows
from tests.support.web_tokens import (
    AUDIENCE,
    CLAIMS,
    ISSUER,
    JWKS,
    NOW_S,
    FakeWeb,
    hmac_signed,
    jwk,
    public_pem,
    raw,
    token,
)


HEADER = {"alg": "RS256", "typ": "JWT", "kid": "RS"}
ALGORITHMS = ("RS256", "ES256", "EdDSA")
DEMANDS = TokenPolicy(service_realms=frozenset({"services"}))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def web():
    oct_key = {"kty": "oct", "kid": "OCT", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}
    keys = [
        jwk("RS"),
        jwk("EC"),
        jwk("ED"),
        jwk("SMALL"),
        oct_key,
        jwk("RS", kid="ENC", use="enc"),
        jwk("RS", kid="PS", alg="PS256"),
        {"kid": "BROKEN", "kty": "RSA", "n": 1},
        "no key",
        {"kty": "RSA"},
    ]
    return FakeWeb({JWKS: {"keys": keys}})


def web_tokens(web, clock, **changes):
    members = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": JWKS, "algorithms": ALGORITHMS, "leeway_s": 0}
    return WebTokens([Issuer(**members | changes)], web.get, clock, DEMANDS.attribute)


def without(*names, **changes):
    return {name: value for name, value in CLAIMS.items() if name not in names} | changes


class TestWebTokens(TokensContract, RemoteTokensContract):
    @pytest.fixture
    def tokens(self, web, clock):
        return web_tokens(web, clock)

    @pytest.fixture
    def good(self):
        return token()

    @pytest.fixture
    def broken(self, web, clock):
        web.down = True
        return web_tokens(web, clock)


class TestCachedWebTokens(TokensContract):
    @pytest.fixture
    def tokens(self, web, clock):
        return CachedTokens(web_tokens(web, clock), clock)

    @pytest.fixture
    def good(self):
        return token()


FORGED = {
    # time
    "expired": lambda: token(without(exp=NOW_S - 1)),
    "expired just now": lambda: token(without(exp=NOW_S)),
    "not yet valid": lambda: token(without(nbf=NOW_S + 1)),
    "issued in the future": lambda: token(without(iat=NOW_S + 1)),
    "no exp": lambda: token(without("exp")),
    "no nbf": lambda: token(without("nbf")),
    "exp is null": lambda: token(without(exp=None)),
    "exp is a text": lambda: raw(HEADER, without(exp=str(NOW_S + 100))),
    "exp is true": lambda: raw(HEADER, without(exp=True)),
    "exp is infinite": lambda: raw(HEADER, json.dumps(CLAIMS).replace(str(NOW_S + 100), "1e999").encode()),
    "exp is no number": lambda: raw(HEADER, json.dumps(CLAIMS).replace(str(NOW_S + 100), "NaN").encode()),
    "exp is enormous": lambda: raw(HEADER, without(exp=10**40)),
    "exp is a list": lambda: raw(HEADER, without(exp=[NOW_S + 100])),
    "nbf is a text": lambda: raw(HEADER, without(nbf="0")),
    "iat is a text": lambda: raw(HEADER, without(iat="soon")),
    # issuer and audience
    "wrong issuer": lambda: token(without(iss="https://other.example")),
    "issuer with a slash": lambda: token(without(iss=ISSUER + "/")),
    "no issuer": lambda: token(without("iss")),
    "issuer is a list": lambda: raw(HEADER, without(iss=[ISSUER])),
    "wrong audience": lambda: token(without(aud="other")),
    "no audience": lambda: token(without("aud")),
    "audience is empty": lambda: token(without(aud=[])),
    "audience is an object": lambda: raw(HEADER, without(aud={AUDIENCE: 1})),
    "audience begins alike": lambda: token(without(aud=AUDIENCE + "-other")),
    # subject
    "no subject": lambda: token(without("sub")),
    "subject is empty": lambda: token(without(sub="")),
    "subject is a number": lambda: raw(HEADER, without(sub=1)),
    "subject breaks lines": lambda: token(without(sub="alice\nbob")),
    "subject is too long": lambda: token(without(sub="a" * 256)),
    "realm is a list": lambda: raw(HEADER, without(realm=["employees"])),
    # algorithm
    "alg none": lambda: raw(HEADER | {"alg": "none"}, CLAIMS, b""),
    "alg None": lambda: raw(HEADER | {"alg": "None"}, CLAIMS, b""),
    "alg none with a signature": lambda: raw(HEADER | {"alg": "none"}, CLAIMS),
    "no alg": lambda: raw({"typ": "JWT", "kid": "RS"}, CLAIMS),
    "alg is a list": lambda: raw(HEADER | {"alg": ["RS256"]}, CLAIMS),
    "alg is null": lambda: raw(HEADER | {"alg": None}, CLAIMS),
    "alg in lower case": lambda: raw(HEADER | {"alg": "rs256"}, CLAIMS),
    "HS256 by the public key": lambda: hmac_signed(HEADER | {"alg": "HS256"}, CLAIMS, public_pem("RS")),
    "HS256 by a published secret": lambda: hmac_signed(
        HEADER | {"alg": "HS256", "kid": "OCT"}, CLAIMS, b"secret-secret-secret-secret-secret"
    ),
    "RS256 said, HS256 done": lambda: hmac_signed(HEADER, CLAIMS, public_pem("RS")),
    "an algorithm that is not on the list": lambda: token(algorithm="RS512"),
    "ES256 by a key for RSA": lambda: raw(HEADER | {"alg": "ES256"}, CLAIMS),
    "RS256 by a key for curves": lambda: token(key="RS", kid="EC"),
    "RS256 by a key for PS256": lambda: token(kid="PS"),
    # key
    "signed by a stranger": lambda: token(key="STRANGER", kid="RS"),
    "signed with a key that is too small": lambda: raw(HEADER | {"kid": "SMALL"}, CLAIMS, key="SMALL"),
    "unknown kid": lambda: token(kid="nope"),
    "no kid": lambda: token(kid=None),
    "kid is a number": lambda: raw(HEADER | {"kid": 1}, CLAIMS),
    "kid is a list": lambda: raw(HEADER | {"kid": ["RS"]}, CLAIMS),
    "kid is a path": lambda: token(kid="../../../../dev/null"),
    "kid is a query": lambda: token(kid="RS' OR '1'='1"),
    "kid is a URL": lambda: token(kid="https://evil.example/keys"),
    "kid with a zero": lambda: token(kid="RS\0"),
    "kid is too long": lambda: token(kid="x" * 300),
    "kid of a key for encryption": lambda: token(kid="ENC"),
    "kid of a broken key": lambda: token(kid="BROKEN"),
    "its own key": lambda: token(key="STRANGER", kid="RS", jwk=jwk("STRANGER")),
    "its own key, well signed": lambda: token(jwk=jwk("RS")),
    "a URL of keys": lambda: token(jku="https://evil.example/keys"),
    "a URL of certificates": lambda: token(x5u="https://evil.example/chain"),
    "its own certificates": lambda: token(x5c=["MII"]),
    "critical extensions": lambda: token(crit=["exp"], exp=1),
    "payload outside": lambda: raw(HEADER | {"b64": False, "crit": ["b64"]}, CLAIMS),
    # form
    "typ of another kind": lambda: token(typ="logout+jwt"),
    "typ is a number": lambda: raw(HEADER | {"typ": 1}, CLAIMS),
    "truncated signature": lambda: token()[:-20],
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "two segments": lambda: token().rpartition(".")[0],
    "four segments": lambda: token() + ".x",
    "encrypted": lambda: token() + ".x.y",
    "too large": lambda: token(without(more="x" * 16_384)),
    "claims of another token": lambda: _swapped(token(), token(without(sub="bob"))),
    "a claim twice": lambda: raw(HEADER, json.dumps(CLAIMS)[:-1].encode() + b',"sub":"root"}'),
    "alg twice": lambda: raw(json.dumps(HEADER)[:-1].encode() + b',"alg":"RS256"}', CLAIMS),
    "claims are a list": lambda: raw(HEADER, b"[]"),
    "claims are no JSON": lambda: raw(HEADER, b"{"),
    "claims are no UTF-8": lambda: raw(HEADER, b'{"sub":"\xff"}'),
    "claims are too deep": lambda: raw(HEADER, b"[" * 10_000),
    "header is a text": lambda: raw(b'"RS256"', CLAIMS),
    "other alphabet": lambda: token().replace("-", "+").replace("_", "/") + "+/",
    "line breaks": lambda: token().replace(".", ".\n"),
}  # fmt: skip


def _swapped(one: str, other: str) -> str:
    header, _, signature = one.split(".")
    return ".".join((header, other.split(".")[1], signature))


@pytest.mark.parametrize("forged", FORGED)
def test_no_forged_token_is_accepted(web, clock, forged):
    assert web_tokens(web, clock).inspect(FORGED[forged]()) is None


@pytest.mark.parametrize(
    ("good", "changes"),
    [
        (lambda: token(key="EC"), {}),
        (lambda: token(key="ED"), {}),
        (lambda: token(typ="at+jwt"), {}),
        (lambda: token(typ="JWT"), {}),
        (lambda: raw({"alg": "RS256", "kid": "RS"}, CLAIMS), {}),
        (lambda: token(without(aud=["other", AUDIENCE])), {}),
        (lambda: token(without(scope=["uid", "read"])), {}),
        (lambda: token(without("nbf")), {"nbf_required": False}),
        (lambda: token(without("iat")), {}),
        (lambda: token(without("realm")), {"realm": "employees"}),
        (lambda: token(without("sub", user="alice")), {"subject_claim": "user"}),
        (lambda: token(without("scope", scp="uid read")), {"scope_claim": "scp"}),
        (lambda: token(without("realm", org="employees")), {"realm_claim": "org"}),
        (lambda: token(without(exp=NOW_S + 100 - 30, nbf=NOW_S + 30)), {"leeway_s": 30}),
    ],
)  # fmt: skip
def test_tokens_signed_by_the_issuer_are_accepted(web, clock, good, changes):
    assert web_tokens(web, clock, **changes).inspect(good()) == ALICE


def test_many_unknown_keys_query_the_issuer_once_in_thirty_seconds(web, clock):
    tokens = web_tokens(web, clock)
    for second in range(120):
        for number in range(5):
            assert tokens.inspect(token(kid=f"unknown-{second}-{number}")) is None
        clock.advance(1_000)
    assert len(web.asked) == 120 / FETCH_AGAIN_S


def test_a_new_key_is_fetched_when_a_token_names_it(web, clock):
    tokens = web_tokens(web, clock)
    rotated = token(kid="NEW")
    assert tokens.inspect(rotated) is None
    web.pages[JWKS] = {"keys": [jwk("RS", kid="NEW")]}
    assert tokens.inspect(rotated) is None
    clock.advance(int(FETCH_AGAIN_S * 1000))
    assert tokens.inspect(rotated) == ALICE
    assert tokens.inspect(token()) is None


def inspected_for(tokens, client, text):
    """The inspection of a token that a client has sent."""
    before = CLIENT.set(client)
    try:
        return tokens.inspect(text)
    finally:
        CLIENT.reset(before)


def test_unknown_keys_of_strangers_do_not_delay_a_new_key_for_others(web, clock):
    tokens, rotated = web_tokens(web, clock), token(kid="NEW")
    ask_from = partial(inspected_for, tokens)
    assert ask_from("alice", token()) == ALICE
    clock.advance(int(FETCH_AGAIN_S * 1000))
    assert ask_from("stranger", token(kid="unknown")) is None
    web.pages[JWKS] = {"keys": [jwk("RS", kid="NEW")]}
    # Not refused, which would be remembered: it can't be said within a second of the strangers' question.
    with pytest.raises(TokensUnavailable):
        ask_from("alice", rotated)
    clock.advance(int(FETCH_FOR_ANY_S * 1000))
    assert ask_from("stranger", token(kid="unknown")) is None
    assert ask_from("alice", rotated) == ALICE


def test_many_clients_together_query_the_issuer_once_in_a_second(web, clock):
    tokens = web_tokens(web, clock)
    for number in range(100):
        with contextlib.suppress(TokensUnavailable):
            assert inspected_for(tokens, f"client-{number}", token(kid=f"unknown-{number}")) is None
        clock.advance(100)
    assert len(web.asked) == 10 / FETCH_FOR_ANY_S


def test_a_revoked_key_is_soon_rejected(web, clock):
    tokens, lasting = web_tokens(web, clock), token(without(exp=NOW_S + 10_000))
    assert tokens.inspect(lasting) is not None
    web.pages[JWKS] = {"keys": []}
    assert tokens.inspect(lasting) is not None
    clock.advance(int(FRESH_S * 1000))
    assert tokens.inspect(lasting) is None


def test_known_keys_are_used_while_the_issuer_is_down_but_not_for_ever(web, clock):
    tokens, lasting = web_tokens(web, clock), token(without(exp=NOW_S + 1_000_000))
    assert tokens.inspect(lasting) is not None
    web.down = True
    clock.advance(int(STALE_S * 1000) - 1)
    assert tokens.inspect(lasting) is not None
    clock.advance(1)
    with pytest.raises(TokensUnavailable):
        tokens.inspect(lasting)


CONFIGURATION = f"{ISSUER}/.well-known/openid-configuration"


def test_the_url_of_the_keys_is_found_in_the_issuers_configuration(web, clock):
    web.pages[CONFIGURATION] = {"issuer": ISSUER, "jwks_uri": JWKS}
    assert web_tokens(web, clock, jwks=None).inspect(token()) == ALICE
    assert web.asked == [CONFIGURATION, JWKS]


@pytest.mark.parametrize(
    "configuration",
    [{"issuer": "https://other.example", "jwks_uri": JWKS}, {"issuer": ISSUER}, [], {"issuer": ISSUER, "jwks_uri": "http://evil.example/"}],
)  # fmt: skip
def test_with_an_untrustworthy_configuration_no_token_is_accepted(web, clock, configuration):
    web.pages[CONFIGURATION] = configuration
    with pytest.raises(TokensUnavailable):
        web_tokens(web, clock, jwks=None).inspect(token())


def test_tokens_of_unknown_issuers_send_no_request(web, clock):
    assert web_tokens(web, clock).inspect(token(without(iss="https://other.example"))) is None
    assert not web.asked


@pytest.mark.parametrize(
    ("bounds", "claims", "uid"),
    rows(
        ("no bounds", {}, {}, "alice"),
        ("its realm", {"realms": ["employees", "other"]}, {}, "alice"),
        ("its realm with a slash", {"realms": ["/employees"]}, {}, "alice"),
        ("another realm", {"realms": ["services"]}, {}, None),
        ("no realm", {"realms": ["services"]}, {"realm": ""}, None),
        ("an attribute", {"attributes": ["user:alice"]}, {}, "alice"),
        ("attributes", {"attributes": ["service:*", "user:al*"]}, {}, "alice"),
        ("of another kind", {"attributes": ["service:alice"]}, {}, None),
        ("a realm of services", {"attributes": ["user:*"]}, {"realm": "/services"}, None),
        ("another attribute", {"attributes": ["user:al"]}, {}, None),
        ("one in the middle", {"attributes": ["user:lice*"]}, {}, None),
        ("both, one is wrong", {"realms": ["services"], "attributes": ["user:alice"]}, {}, None),
        ("a prefix", {"uid_prefix": "partner/"}, {}, "partner/alice"),
        ("a permitted prefix", {"uid_prefix": "partner/", "attributes": ["user:partner/*"]}, {}, "partner/alice"),
        ("a prefix of something else", {"uid_prefix": "partner/", "attributes": ["user:alice"]}, {}, None),
        ("a prefix that makes it too long", {"uid_prefix": "p"}, {"sub": "a" * 255}, None),
        ("a prefix without a user", {"uid_prefix": "p"}, {"sub": ""}, None),
    ),
)
def test_an_issuer_issues_only_identities_within_its_bounds(web, clock, bounds, claims, uid):
    info = web_tokens(web, clock, **bounds).inspect(token(CLAIMS | claims))
    assert (info.uid if info else None) == uid


def written(folder, *issuers):
    """An issuers file, with these lines for each issuer."""
    tables = [
        f'[[issuer]]\nissuer = "https://{number}.example"\naudience = "rioni"\n{lines}\n'
        for number, lines in enumerate(issuers)
    ]
    path = folder / "issuers.toml"
    path.write_text("\n".join(tables))
    return path


@pytest.mark.parametrize(
    "issuers",
    rows(
        ("one alone", [""]),
        ("users and services", ['attributes = ["user:*"]', 'attributes = ["service:*"]']),
        ("prefixes", ['uid_prefix = "a/"', 'uid_prefix = "b/"']),
        ("names", ['attributes = ["user:a", "user:ab"]', 'attributes = ["user:abc", "service:a"]']),
        ("a prefix beside names", ['uid_prefix = "a/"', 'attributes = ["user:b*"]']),
        ("many", [f'uid_prefix = "{number:03}/"' for number in range(100)]),
    ),
)
def test_issuers_with_disjoint_identities_are_accepted(tmp_path, issuers):
    assert len(read_issuers(written(tmp_path, *issuers))) == len(issuers)


@pytest.mark.parametrize(
    "issuers",
    rows(
        ("no bounds", ["", ""]),
        ("one without bounds", ["", 'attributes = ["user:a"]']),
        ("realms alone", ['realms = ["employees"]', 'realms = ["services"]']),
        ("the same", ['attributes = ["user:a*"]', 'attributes = ["user:a*"]']),
        ("one inside the other", ['attributes = ["user:*"]', 'attributes = ["service:x", "user:alice"]']),
        ("a name inside a prefix", ['uid_prefix = "a"', 'attributes = ["service:ab"]']),
        ("the third like the first", ['uid_prefix = "a/"', 'uid_prefix = "b/"', 'uid_prefix = "a/b/"']),
    ),
)
def test_issuers_with_overlapping_identities_are_rejected(tmp_path, issuers):
    with pytest.raises(TokensUnavailable, match="could both give out tokens for"):
        read_issuers(written(tmp_path, *issuers))


@pytest.mark.parametrize("pattern", ["alice", "*:*", "user:*a", "team:a", "*"])
def test_bounds_that_no_token_can_match_are_rejected(tmp_path, pattern):
    with pytest.raises(TokensUnavailable, match="attributes"):
        read_issuers(written(tmp_path, f'attributes = ["{pattern}"]'))
