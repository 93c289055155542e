from rioni.config.settings import Config
from rioni.domain.access.authorization import TokenPolicy
from rioni.domain.ports.host import direct
from rioni.storage.tokens.sources import sources_of_tokens
from rioni.storage.tokens.token_servers import Response
from tests.support.clock import ManualClock
from tests.support.tokens import bearer, write_tokens
from tests.support.web_tokens import AUDIENCE, CLAIMS, ISSUER, JWKS, FakeWeb, jwk, token


TOKEN_INFO = "http://localhost:9021/tokeninfo"
OPAQUE, UNKNOWN = "an-opaque-token", "an-unknown-token"


def test_sources_are_tried_in_the_order_file_issuers_token_info_service(tmp_path):
    """Reference common#token-sources."""
    of_all, of_issuer = token(), token(CLAIMS | {"sub": "bob"})

    def info(headers):
        return (
            Response(401, b"") if headers == bearer(UNKNOWN) else {"uid": "info", "scope": ["uid"], "expires_in": 100}
        )

    web = FakeWeb({JWKS: {"keys": [jwk("RS")]}, TOKEN_INFO: info})
    write_tokens(tmp_path / "tokens.toml", {of_all: {"uid": "file"}})
    (tmp_path / "issuers.toml").write_text(
        f'[[issuer]]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\njwks = "{JWKS}"\n'
    )
    config = Config(
        auth_tokens=tmp_path / "tokens.toml", auth_issuers=tmp_path / "issuers.toml", auth_tokeninfo_local=TOKEN_INFO
    )
    sources = sources_of_tokens(config, ManualClock(), TokenPolicy(), direct, only_remote=lambda: False, get=web.get)
    assert web.asked == []
    for shown, uid, asked in (
        (of_all, "file", []),
        (of_issuer, "bob", [JWKS]),
        (OPAQUE, "info", [TOKEN_INFO]),
        (UNKNOWN, None, [TOKEN_INFO]),
    ):
        web.asked.clear()
        found = sources.inspect(shown)
        assert ((found.uid if found else None), web.asked) == (uid, asked)
