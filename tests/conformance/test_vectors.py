"""Shared cases with exact outputs, one test a case.

`SIDELOOK_VECTORS` names another folder of cases. A case that cannot be replayed fails.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.vector_cases import QueueCase, ValveCase, replay_retry

FOLDER = Path(os.environ.get("SIDELOOK_VECTORS") or Path(__file__).parent / "vectors")
# {kind of file: (name of its list of cases, how to replay one)}
REPLAYS: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "queue": ("cases", lambda case: QueueCase(case).replay(case["ops"])),
    "valve": ("cases", lambda case: ValveCase(case).replay()),
    "retry": ("strategies", replay_retry),
}


def cases() -> Iterator[Any]:
    """Every case of every file as a parameter."""
    for kind, (name, _) in REPLAYS.items():
        for path in sorted(FOLDER.glob(f"{kind}*.json")):
            for case in json.loads(path.read_text())[name]:
                yield pytest.param(kind, case, id=f"{path.stem}:{case['name']}")


CASES = list(cases())


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_case_has_exactly_these_outputs(kind: str, case: dict[str, Any]) -> None:
    """Each operation of the case has the outputs of the case and no others."""
    REPLAYS[kind][1](case)


def test_folder_holds_cases() -> None:
    """The folder has cases."""
    assert CASES
