"""The broker's settings: administrators, blacklist and features (reference settings-and-storages#administrators)."""

import msgspec

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import Malformed
from rioni.domain.events import DomainEvent


SETTINGS = "settings"
"""The one key of the settings' stream."""

BLACKLIST_TYPES = ("CONSUMER_APP", "CONSUMER_ET", "PRODUCER_APP", "PRODUCER_ET")

FEATURES = (
    "disable_event_type_creation",
    "disable_event_type_deletion",
    "delete_event_type_with_subscriptions",
    "event_type_deletion_only_admins",
    "disable_subscription_creation",
    "remote_tokeninfo",
    "kpi_collection",
    "audit_log_collection",
    "disable_db_write_operations",
    "force_event_type_authz",
    "force_subscription_authz",
    "repartitioning",
    "event_owner_selector_authz",
    "access_log_enabled",
    "token_subscriptions_iteration",
    "return_body_on_create_update_event_type",
    "validate_subscription_owning_application",
    "validate_event_type_owning_application",
    "skip_misplaced_events",
    "dlq_redrive_event_type_attachment_job",
    "force_data_lake_annotations",
)
"""All features, in the order in which the API lists them."""

_SPELLINGS = {
    "token_subscription_iteration": "token_subscriptions_iteration",
    "validate_subscription_owning_app": "validate_subscription_owning_application",
    "validate_event_type_owning_app": "validate_event_type_owning_application",
}


class Admins(msgspec.Struct, frozen=True, kw_only=True):
    """The administrators of the broker, for each operation."""

    admins: tuple[Attribute, ...] = ()
    readers: tuple[Attribute, ...] = ()
    writers: tuple[Attribute, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all settings."""

    admins: Admins = Admins()
    blacklist: tuple[tuple[str, str], ...] = ()
    """Pairs of a blacklist type and a name, sorted."""
    features: tuple[str, ...] = ("repartitioning",)
    """The features that are on, sorted; the default is the features of a new broker."""


class AdminsChanged(DomainEvent, frozen=True, kw_only=True):
    """The administrators of the broker were replaced."""

    TOPIC = "settings.admins-changed"
    KEY = "setting"

    setting: str = SETTINGS
    admins: Admins


class BlacklistEntryAdded(DomainEvent, frozen=True, kw_only=True):
    """An application or an event type was blocked."""

    TOPIC = "settings.blacklist-entry-added"
    KEY = "setting"

    setting: str = SETTINGS
    type: str
    name: str


class BlacklistEntryRemoved(DomainEvent, frozen=True, kw_only=True):
    """An application or an event type was unblocked."""

    TOPIC = "settings.blacklist-entry-removed"
    KEY = "setting"

    setting: str = SETTINGS
    type: str
    name: str


class FeatureSwitched(DomainEvent, frozen=True, kw_only=True):
    """A feature was switched on or off."""

    TOPIC = "settings.feature-switched"
    KEY = "setting"

    setting: str = SETTINGS
    feature: str
    enabled: bool


class LossAccepted(DomainEvent, frozen=True, kw_only=True):
    """An operator accepted inconsistent stores; no setting is changed."""

    TOPIC = "settings.loss-accepted"
    KEY = "setting"

    setting: str = SETTINGS
    findings: tuple[str, ...]
    """The inconsistencies that were found, a sentence each."""
    reason: str
    """The operator's."""


def evolve(state: Settings | None, event: DomainEvent) -> Settings | None:
    """The state after an event; total."""
    settings = state or Settings()
    blacklist, features = {*settings.blacklist}, {*settings.features}
    match event:
        case AdminsChanged(admins=admins):
            settings = msgspec.structs.replace(settings, admins=admins)
        case BlacklistEntryAdded(type=kind, name=name):
            blacklist.add((kind, name))
        case BlacklistEntryRemoved(type=kind, name=name):
            blacklist.discard((kind, name))
        case FeatureSwitched(feature=feature, enabled=enabled):
            features = features | {feature} if enabled else features - {feature}
        case _:
            return state
    return msgspec.structs.replace(
        settings, blacklist=tuple(sorted(blacklist, key=str)), features=tuple(sorted(features))
    )


def feature_named(name: str) -> str:
    """The feature that a client means, in any accepted spelling.

    Raises:
        Malformed: there is no such feature.
    """
    lowered = name.lower()
    feature = _SPELLINGS.get(lowered, lowered)
    if feature not in FEATURES:
        raise Malformed(f"Illegal enum value: '{name}'. Possible values: [{', '.join(FEATURES)}]")
    return feature
