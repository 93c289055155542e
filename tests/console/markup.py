"""Reads pages of the console: their forms, and what runs scripts."""

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Form:
    """A form that changes something."""

    address: str
    """The address that it is sent to; empty for the address of its page."""
    fields: dict[str, str] = field(default_factory=dict)
    """By name, with the value that the page gives them."""
    actions: set[str] = field(default_factory=set)
    """The values of its buttons."""
    disabled: dict[str, str] = field(default_factory=dict)
    """The buttons that can't be pressed, with the id of the element that says why; empty if there is none."""


def forms(page: str) -> list[Form]:
    """The forms of a page that change something."""
    return _parsed(page).forms


def active(page: str) -> list[str]:
    """The parts of a page that would run: event attributes, and inline scripts."""
    return _parsed(page).active


def _parsed(page: str) -> "_Page":
    parser = _Page()
    parser.feed(page)
    parser.close()
    return parser


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.active: list[str] = []
        self._form: Form | None = None
        self._area: str | None = None
        self._fieldset: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.active += [f"<{tag} {name}>" for name in given if name.startswith("on")]
        self.active += ["<script>"] if tag == "script" and "src" not in given else []
        self.active += [f"<{tag} {value}>" for value in given.values() if value.startswith("javascript:")]
        if tag == "form" and given.get("method") == "post":
            self._form = Form(given.get("action", ""))
            self.forms.append(self._form)
        elif tag == "fieldset":
            self._fieldset = given.get("aria-describedby", "") if "disabled" in given else None
        elif self._form is None or "name" not in given:
            return
        elif tag == "button":
            self._form.actions.add(given["value"])
            if "disabled" in given or self._fieldset is not None:
                self._form.disabled[given["value"]] = given.get("aria-describedby") or self._fieldset or ""
        else:
            self._form.fields[given["name"]] = given.get("value", "")
            self._area = given["name"] if tag == "textarea" else None

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "textarea":
            self._area = None
        elif tag == "fieldset":
            self._fieldset = None

    def handle_data(self, data: str) -> None:
        if self._form is not None and self._area is not None:
            self._form.fields[self._area] += data
