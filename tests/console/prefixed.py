"""Reads the addresses that answers give out."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx


LINKS = frozenset(("href", "src", "action", "formaction", "poster", "hx-get", "hx-post", "hx-put", "hx-delete"))
"""Attributes that are addresses, relative ones as well."""


def addresses(answer: httpx.Response) -> Iterator[str]:
    """The absolute URLs of all addresses in the headers and the HTML of an answer."""
    page = str(answer.url)
    for name in ("location", "content-location", "hx-redirect"):
        if name in answer.headers:
            yield urljoin(page, answer.headers[name])
    for target in re.findall(r"<([^>]*)>", answer.headers.get("link", "")):
        yield urljoin(page, target)
    for cookie in answer.headers.get_list("set-cookie"):
        yield urljoin(page, re.search(r"; Path=([^;]*)", cookie)[1])
    if answer.headers.get("content-type", "").startswith("text/html"):
        parser = _Addresses()
        parser.feed(answer.text)
        parser.close()
        yield from (urljoin(page, each) for each in parser.found)
        # Commands to copy.
        yield from re.findall(rf"{re.escape(_origin(page))}[^\s\"'<&]*", answer.text)


def links(answer: httpx.Response) -> Iterator[str]:
    """The absolute URLs to which an answer leads: by its redirect, and by its links."""
    if "location" in answer.headers:
        yield urljoin(str(answer.url), answer.headers["location"])
    if not answer.headers.get("content-type", "").startswith("text/html"):
        return
    parser = _Addresses()
    parser.feed(answer.text)
    yield from (urljoin(str(answer.url), each) for each in parser.clicked)


def is_within(address: str, broker_url: str) -> bool:
    """Whether an address is one of a broker."""
    return address == broker_url or address.startswith((f"{broker_url}/", f"{broker_url}?"))


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.clicked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        # Whatever the attribute is: a script may take it for an address.
        found = [value for name, value in given.items() if name in LINKS or re.match(r"/\w", value)]
        self.found += [value for value in found if not value.startswith("data:")]
        if tag == "meta" and given.get("http-equiv") == "refresh":
            self.found.append(given["content"].partition("url=")[2])
        if tag == "a" and "href" in given:
            self.clicked.append(given["href"])
