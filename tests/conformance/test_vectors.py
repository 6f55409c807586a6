"""Shared cases with exact outputs, replayed against ours: one test a case, named after it.

`SIDELOOK_VECTORS` names another folder of cases. What cannot be replayed fails, nothing is skipped.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.queue_case import QueueCase
from tests.conformance.retry_case import replay_retry
from tests.conformance.valve_case import ValveCase

FOLDER = Path(os.environ.get("SIDELOOK_VECTORS") or Path(__file__).parent / "vectors")
KINDS = ("queue", "valve", "retry")


def replay_queue(case: dict[str, Any]) -> None:
    """Replay a case of an element queue."""
    QueueCase(case).replay(case["ops"])


def replay_valve(case: dict[str, Any]) -> None:
    """Replay a case of a watermark valve."""
    ValveCase(case).replay()


REPLAYS: dict[str, Callable[[dict[str, Any]], None]] = {
    "queue": replay_queue,
    "valve": replay_valve,
    "retry": replay_retry,
}
LISTS = {
    "queue": "cases",
    "valve": "cases",
    "retry": "strategies",
}  # under which name a file lists its cases


def cases() -> Iterator[Any]:
    """Every case of every known kind of file, as a parameter."""
    for kind in KINDS:
        for path in sorted(FOLDER.glob(f"{kind}*.json")):
            content = json.loads(path.read_text())
            for case in content[LISTS[kind]] if kind in REPLAYS else [{"name": "all of it"}]:
                yield pytest.param(kind, case, id=f"{path.stem}:{case['name']}")


@pytest.mark.parametrize(("kind", "case"), list(cases()))
def test_case_has_exactly_these_outputs(kind: str, case: dict[str, Any]) -> None:
    """Each operation of the case gives what the case says, and nothing else."""
    replay = REPLAYS.get(kind)

    assert replay is not None, f"no replay for {kind} cases"

    replay(case)


def test_folder_holds_cases() -> None:
    """A folder without cases proves nothing."""
    assert list(cases())
