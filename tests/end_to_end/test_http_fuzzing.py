"""Whatever is sent to the HTTP surface, the answer is one that the OpenAPI document names."""

import json
import secrets
from collections.abc import Iterator

import pytest

from tests.end_to_end.http_fuzzing import FuzzedSidecar, exact, fuzz, fuzzed_sidecar

# For each operation; fewer where there are not so many, and some more in stateful runs.
FEW, MANY = 20, 30
ROUNDS, MANY_EXAMPLES = 10, 500  # so that all rounds have 5,000


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedSidecar]:
    """The sidecar of these tests."""
    with fuzzed_sidecar(tmp_path_factory.mktemp("fuzzed")) as running:
        yield running


@pytest.mark.parametrize(
    ("examples", "at_least"),
    [
        (FEW, 300),
        *[pytest.param(MANY, MANY_EXAMPLES, marks=pytest.mark.full) for _ in range(ROUNDS)],
    ],
)
def test_answers_are_documented(sidecar: FuzzedSidecar, examples: int, at_least: int) -> None:
    """No status that is not named for the operation, 500 among them; bodies as they are described.

    What violates the document is refused. The seed is in the text of a failure.
    """
    document = json.loads(sidecar.process.get("/openapi.json").text)

    fuzzing = fuzz(sidecar, document, examples=examples, seed=secrets.randbelow(2**31))

    assert fuzzing.code == 0, fuzzing.text
    assert fuzzing.examples >= at_least
    assert sidecar.process.health("/livez").status == 200


def test_no_answer_stands_for_all() -> None:
    """An undocumented status would not be seen if a `default` could stand for it."""
    responses = {"200": {"description": "fine"}, "default": {"description": "else"}}
    document = {"paths": {"/a": {"parameters": [], "get": {"responses": responses}}}}

    assert exact(document) == {
        "paths": {"/a": {"parameters": [], "get": {"responses": {"200": {"description": "fine"}}}}}
    }
