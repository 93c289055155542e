"""All pages, and the sections of the menu."""

from typing import NamedTuple

from rioni.console.pages import account, administration, audit, event_type, event_types, events, overview, subscriptions
from rioni.console.pages.page import Page


class Section(NamedTuple):
    """An entry of the menu."""

    title: str
    path: str
    key: str
    """Typed after `g`, leads there."""


SECTIONS = (
    Section("Overview", "/", "o"),
    Section("Event types", "/event-types", "e"),
    Section("Subscriptions", "/subscriptions", "s"),
    Section("Audit", "/audit", "a"),
    Section("Storages", "/storages", "t"),
    Section("Settings", "/settings", "c"),
    Section("Jobs", "/jobs", "j"),
)
PAGES: tuple[Page, ...] = (
    overview.OVERVIEW,
    event_types.EVENT_TYPES,
    event_types.NEW_EVENT_TYPE,
    event_type.EVENT_TYPE,
    events.EVENTS,
    subscriptions.SUBSCRIPTIONS,
    subscriptions.SUBSCRIPTION,
    audit.AUDIT,
    audit.AUDIT_ENTRY,
    administration.STORAGES,
    administration.SETTINGS,
    administration.JOBS,
    account.ACCOUNT,
)
