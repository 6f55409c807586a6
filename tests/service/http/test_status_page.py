"""The page stands alone: nothing foreign is loaded, and nothing but ours may run."""

import re
from pathlib import Path

import pytest

from service.http import status_page
from tests.service.http.serving import Served

FOLDER = Path(status_page.__file__).parent / "page"


async def test_page_is_one_document(service: Served) -> None:
    """Style and script stand in the page, and no address of another host does."""
    async with service.tcp.get("/") as response:
        page = await response.text()

    assert (response.status, response.content_type) == (200, "text/html")
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) == []
    assert ":root {" in page
    assert '"use strict";' in page
    assert "/*script*/" not in page


async def test_every_file_of_the_page_is_in_it(service: Served) -> None:
    """No script or style lies in the folder that the page does not have."""
    async with service.tcp.get("/") as response:
        page = await response.text()

    files = [path for path in FOLDER.iterdir() if path.suffix in {".js", ".css"}]
    assert len(files) > 2
    assert [path.name for path in files if path.read_text() not in page] == []


def test_page_makes_no_markup_of_texts() -> None:
    """Names and messages become text nodes: nothing in the scripts parses HTML or code."""
    parsers = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    )
    scripts = [path.read_text() for path in FOLDER.glob("*.js")]

    assert [parser for parser in parsers if any(parser in script for script in scripts)] == []


def test_every_meaning_is_of_a_word() -> None:
    """What explains a word goes when the page has the word no more."""
    words = FOLDER / "words.js"
    meanings = words.read_text().partition("MEANINGS = {")[2].partition("};")[0]
    explained = re.findall(r'^  "?([^":]+)"?:', meanings, re.MULTILINE)
    others = "".join(path.read_text() for path in FOLDER.glob("*.js") if path != words)

    assert len(explained) > 10
    assert [word for word in explained if f'"{word}"' not in others] == []


@pytest.mark.parametrize("host", ["127.0.0.1:8815", "localhost:8815", "localhost:18815"])
@pytest.mark.parametrize("path", ["/", "/v1/status"])
async def test_forwarded_port_is_answered(service: Served, path: str, host: str) -> None:
    """A browser behind `kubectl port-forward` names the port that it has been given."""
    headers = {"Host": host, "Sec-Fetch-Site": "same-origin"}

    async with service.tcp.get(path, headers=headers) as response:
        assert response.status == 200


async def test_policy_allows_our_script_only(service: Served) -> None:
    """Script and style carry a number that the policy names, and that is never the same."""
    async with service.tcp.get("/") as response:
        first = await response.text()
    async with service.tcp.get("/") as response:
        second = await response.text()

    nonces = set(re.findall(r'nonce="([^"]+)"', second))
    assert len(nonces) == 1
    assert response.headers["Content-Security-Policy"].count(f"'nonce-{nonces.pop()}'") == 2
    assert first != second


async def test_policy_forbids_by_default(service: Served) -> None:
    """What the page does not need is forbidden to it."""
    async with service.tcp.get("/") as response:
        policy = response.headers["Content-Security-Policy"]

    assert policy.startswith("default-src 'none';")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
