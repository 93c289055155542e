"""Settings of the server: its address, its data, and its authentication.

Structs have one base each, so the groups of settings form a chain: these, those of requests, `Config`.
"""

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from rioni.config.proxies import BASE_PATH, BASE_PATH_CHARACTERS_MAX, BASE_PATH_EXPECTED
from rioni.domain.access.authorization import WELL_KNOWN_ADMIN, Mode


SECRET = {"secret": True}
_MODES = {"expected": "one of " + ", ".join(Mode)}


def list_of(item: str) -> str:
    """The pattern of a text that holds such items, separated by commas, or is empty."""
    return f"^(({item})(,({item}))*)?$"


def _one_per_core() -> int:
    return len(os.sched_getaffinity(0))


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the server: its address, its data, and its authentication."""

    # Addresses and data
    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. The default is reachable from this machine only, because "
            "authentication is off; `0.0.0.0` or `::` opens the broker to the network, which needs an `auth_mode` "
            "or "
            "`allow_unauthenticated`.",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="TCP port; 0 lets the system choose a free one.")] = 8_080
    tls_certificate: Annotated[
        Path | None,
        Meta(
            description="PEM file with the broker's certificate and those of intermediate authorities; with it and "
            "`tls_key` the broker speaks HTTPS. Both files are read again when they change."
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Meta(description="PEM file with the private key of `tls_certificate`, without a passphrase.")
    ] = None
    base_path: Annotated[
        str,
        Meta(
            pattern=BASE_PATH,
            max_length=BASE_PATH_CHARACTERS_MAX,
            description="Path below which a reverse proxy serves the broker, such as `/broker`; links, redirects and "
            "cookies have it. The broker answers below it and at `/`, so the proxy may remove it or not.",
            extra={"expected": BASE_PATH_EXPECTED},
        ),
    ] = ""
    trusted_proxies: Annotated[
        str,
        Meta(
            pattern=list_of(r"[0-9A-Fa-f:.]+(/[0-9]{1,3})?"),
            description="Addresses and networks of the proxies, such as `10.0.0.7,10.1.0.0/16`, separated by commas, "
            "whose header `X-Forwarded-Prefix` takes the place of `base_path`; from others it has no effect.",
            extra={"expected": "addresses and networks like 10.0.0.7 and 10.1.0.0/16, separated by commas"},
        ),
    ] = ""
    console: Annotated[
        bool, Meta(description="Whether the broker serves the console, pages for browsers below `/console`.")
    ] = True
    console_oidc_issuer: Annotated[
        str,
        Meta(
            pattern="^(https?://.*)?$",
            description="URL of the OpenID Connect provider at which users of the console log in; without it they "
            "paste a token. Its tokens must be ones that the broker accepts, see `auth_issuers`.",
            extra={"expected": "an http or https URL"},
        ),
    ] = ""
    console_oidc_client_id: Annotated[
        str, Meta(min_length=1, description="The console's client id at that provider.")
    ] = "rioni"
    console_oidc_client_secret: Annotated[
        str | None, Meta(description="Its secret; without one it is a public client.", extra=SECRET)
    ] = None
    console_oidc_scope: Annotated[
        str, Meta(min_length=1, description="Scopes that the console asks for, separated by spaces.")
    ] = "openid"
    console_oidc_token: Annotated[
        str,
        Meta(
            pattern="^(access_token|id_token)$",
            description="Which of the provider's tokens the console uses: `access_token` or `id_token`.",
            extra={"expected": "one of access_token, id_token"},
        ),
    ] = "access_token"  # noqa: S105
    data: Annotated[
        Path, Meta(description="Data directory, created if missing; relative to the working directory.")
    ] = Path("rioni-data")
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Worker processes; the default is one for each core it may use.")
    ] = msgspec.field(default_factory=_one_per_core)
    database: Annotated[
        str | None,
        Meta(
            description="URL of a PostgreSQL database for the registry; without it SQLite in the data directory.",
            extra=SECRET,
        ),
    ] = None
    database_connections_max: Annotated[
        int,
        Meta(
            ge=2,
            le=1_000,
            description="Connections of each worker to PostgreSQL, and two more; "
            "one worker of each node of a cluster has three more.",
        ),
    ] = 10
    database_lock_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="Maximum wait for a connection or a lock; then 503. At start-up, maximum wait for other "
            "brokers to release the database.",
        ),
    ] = 30
    kafka: Annotated[
        str | None,
        Meta(
            description="Brokers of Kafka, `host:port`, separated by commas, for the storages of type kafka that name "
            "none themselves.",
        ),
    ] = None
    kafka_options: Annotated[
        Path | None,
        Meta(
            description="A TOML file with options of librdkafka, such as credentials and certificates: a table "
            '`["host:port,host:port"]` for each cluster.',
        ),
    ] = None
    kafka_request_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Timeout of Kafka requests other than publishing; then 503.",
        ),
    ] = 10

    zookeeper: Annotated[
        str | None,
        Meta(
            description="Servers of ZooKeeper, `host:port`, separated by commas, and behind them, where others use "
            "them, a path such as `/rioni`. With it this broker is one of several nodes; all have the same `database`, "
            "`kafka` and `zookeeper`.",
        ),
    ] = None
    zookeeper_options: Annotated[
        Path | None, Meta(description="A TOML file with credentials and certificates for ZooKeeper.")
    ] = None
    zookeeper_session_timeout_s: Annotated[
        int,
        Meta(
            ge=2,
            le=40,
            description="ZooKeeper session timeout: partitions are reassigned after it. The worker stops its streams "
            "earlier.",
        ),
    ] = 10

    # Authentication and authorization
    allow_unauthenticated: Annotated[
        bool,
        Meta(
            description="Whether the broker may listen on an address that other machines can reach while `auth_mode` "
            "is `off`, which gives all of them all permissions; the log and `/readyz` warn about it.",
        ),
    ] = False
    allowed_hosts: Annotated[
        str,
        Meta(
            pattern=list_of(r"(\[[0-9A-Fa-f:.]+\]|[^][:/,\s]+)"),
            description="Names that requests may have in their header `Host`, without a port, separated by commas, "
            "beside those of this machine (`localhost`, `127.0.0.1`, `[::1]`). If it is empty all names are accepted, "
            "unless `auth_mode` is `off` and `host` is an address of this machine: then none.",
            extra={"expected": "names of hosts without ports, separated by commas"},
        ),
    ] = ""
    allowed_origins: Annotated[
        str,
        Meta(
            pattern=list_of(r"https?://[^][/,\s@]+|https?://\[[0-9A-Fa-f:.]+\](:[0-9]+)?"),
            description="Origins of other sites, such as `https://app.example.org`, separated by commas, whose web "
            "pages may use the API (CORS).",
            extra={"expected": "origins like https://app.example.org, separated by commas"},
        ),
    ] = ""
    auth_mode: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(Mode)})$",
            description="How strictly tokens are checked: `off` gives every client all permissions, `basic` asks for "
            "a token "
            "with the scope `uid`, `realm` for one of `auth_realms` besides, `full` for the scope of each operation.",
            extra=_MODES,
        ),
    ] = Mode.OFF.value
    auth_tokens: Annotated[
        Path | None, Meta(description="TOML file with the SHA-256 of each token and its principal.")
    ] = None
    auth_issuers: Annotated[
        Path | None, Meta(description="TOML file with the OpenID Connect issuers whose JSON Web Tokens are accepted.")
    ] = None
    auth_tokeninfo_local: Annotated[
        str | None,
        Meta(
            description="URL of a token info service nearby; asked first, unless the feature `remote_tokeninfo` is on."
        ),
    ] = None
    auth_tokeninfo_remote: Annotated[
        str | None, Meta(description="URL of a token info service; asked where the local one can't be.")
    ] = None
    auth_realms: Annotated[str, Meta(description="Realms accepted in the mode `realm`, separated by commas.")] = (
        "services,employees"
    )
    auth_service_realms: Annotated[
        str,
        Meta(
            description="The realms, separated by commas, whose uids are services: their attribute is `service:<uid>`, "
            "that of all others `user:<uid>`."
        ),
    ] = "services"
    default_admin: Annotated[
        str,
        Meta(
            pattern="^([^:]+:[^:]+)?$",
            description="The administrator that always is one and can't be removed, as `data_type:value`. It must be "
            f"chosen unless `auth_mode` is `off`; where it is not, it is `{WELL_KNOWN_ADMIN}`.",
        ),
    ] = ""
    all_data_access: Annotated[
        str,
        Meta(
            pattern="^([^:,]+:[^:,]+(,[^:,]+:[^:,]+)*)?$",
            description="Who may read every event type, as `data_type:value`, separated by commas.",
        ),
    ] = ""
    log_signing_key: Annotated[
        Path | None,
        Meta(
            description="PEM file with the Ed25519 key that signs checkpoints of the log, made if it is missing; by "
            "default `log-signing.key` in the data directory. The nodes of a cluster need the same one."
        ),
    ] = None
    log_origin: Annotated[
        str,
        Meta(
            pattern="^[^\\s+]{0,200}$",
            description="Name of the log in its checkpoints, and of the key; by default `rioni/` and the id of the "
            "installation.",
        ),
    ] = ""
    log_witnesses: Annotated[
        str,
        Meta(
            description="Verifier keys of the witnesses whose cosignatures are accepted, separated by commas; at most "
            "16."
        ),
    ] = ""
    audit_readers: Annotated[
        str,
        Meta(
            pattern="^([^:,]+:[^:,]+(,[^:,]+:[^:,]+)*)?$",
            description="Who may read the history of the broker (`/audit`, `?as_of=`), as `data_type:value`, separated "
            "by commas, beside its administrators and readers.",
        ),
    ] = ""
