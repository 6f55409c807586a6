"""The handler that HTTP lookups are compared with."""

from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.http_cases import bare_handler

ROW = {"name": "customer 42"}


def test_answers_are_what_was_given(tmp_path: Path) -> None:
    """Each route has its answer as JSON, whatever stands in the path."""
    answers: dict[str, dict[str, Any]] = {
        "GET /0/rows/{key}": ROW,
        "POST /1/lookup": {"rows": [ROW]},
    }
    with bare_handler(answers, tmp_path) as url:
        with urlopen(f"{url}/0/rows/42") as response:  # noqa: S310
            got = (response.headers["Content-Type"], response.read())
        with urlopen(f"{url}/1/lookup", b"anything") as response:  # noqa: S310
            posted = response.read()

    assert got == ("application/json", b'{"name":"customer 42"}')
    assert posted == b'{"rows":[{"name":"customer 42"}]}'
