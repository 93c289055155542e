"""The console's frame: its address, its answers, and the files that it loads."""

import gzip
import re

import httpx
import pytest

from rioni.console.app import PAGES, SECTIONS
from rioni.console.rendering import assets
from tests.support.server import running_server
from tests.support.waiting import WAIT_S


BYTES_MAX = 150_000


def test_the_root_leads_browsers_to_the_console_and_is_no_resource_of_the_api(visitor, api):
    assert visitor.get("/").headers["location"] == "/console"
    assert api.get("/").status_code == 404


def test_a_page_is_json_on_request(visitor, event_type):
    event_type("console.as-json")
    page = visitor.get("/console/event-types", params={"q": "console.as-json", "format": "json"}).json()
    assert [item["name"] for item in page["items"]] == ["console.as-json"]


def test_pages_can_be_read_without_scripts(visitor, event_type):
    event_type("console.without-scripts")
    text = visitor.get("/console/event-types", params={"q": "without-scripts"}).text
    assert ">console.without-scripts</a>" in text


def test_every_page_allows_nothing_but_its_own_files(visitor):
    for path in ("/console", "/console/event-types", "/console/login", "/console/no-such-page"):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["cache-control"] == "no-store"


def test_files_are_compressed_small_and_for_ever(visitor):
    page = visitor.get("/console").text
    urls = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page)
    assert urls
    sizes = 0
    for url in urls:
        answer = visitor.get(url, headers={"Accept-Encoding": "gzip"})
        assert "immutable" in answer.headers["cache-control"]
        assert visitor.get(url, headers={"Accept-Encoding": "identity"}).content == answer.content
        sizes += len(gzip.compress(answer.content))
    assert sum(len(asset.compressed) for asset in assets().values()) < BYTES_MAX
    assert sizes < BYTES_MAX
    assert visitor.get(urls[0].replace("static/", "static/0")).status_code == 404


def test_an_unknown_page_says_so(visitor):
    answer = visitor.get("/console/no-such-page")
    assert answer.status_code == 404
    assert "To the overview" in answer.text


def test_every_section_is_a_page_with_a_key_of_its_own():
    assert {section.path for section in SECTIONS} <= {page.path for page in PAGES}
    assert len({section.key for section in SECTIONS}) == len(SECTIONS)


@pytest.mark.slow
def test_a_broker_can_be_without_console(tmp_path):
    with running_server(tmp_path / "data", "--workers", "1", environment={"RIONI_CONSOLE": "false"}) as running:
        assert httpx.get(f"{running.url}/console", verify=False, timeout=WAIT_S).status_code == 404
