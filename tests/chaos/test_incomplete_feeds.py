"""Short audits of incomplete feeds: hits are wrong within the bounds, and the audit finds others.

`make audit` runs long ones. `SIDELOOK_CHAOS_SEED` repeats a run.
"""

import os
import random
from collections.abc import Mapping, Sequence

import pytest

from service.config.refresh import UNCHECKED
from tools.freshness.incomplete.feed_faults import OF_PUBLISHER, OF_REPLICA, FeedFault
from tools.freshness.incomplete.rounds import IncompleteReport, audit_incomplete
from tools.freshness.world import AuditPlan

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))
NAMED = {each.name: each for each in OF_PUBLISHER}


def audited(
    faults: Sequence[FeedFault],
    *,
    has_replica: bool = False,
    changelog: Mapping[str, str] | None = None,
) -> IncompleteReport:
    """The report of one round of these faults, also printed."""
    plan = AuditPlan(
        "changelog", "mixed", has_replica=has_replica, changelog=changelog or {}, seed=SEED
    )
    report = audit_incomplete(plan, faults, rounds=1)
    print("\n".join(report.lines()))  # noqa: T201 -- shown when it fails
    return report


@pytest.mark.usefixtures("libraries")
def test_incomplete_feed_keeps_its_bound() -> None:
    """While a feed omits or forges changes, no hit is wrong for longer than its bound."""
    report = audited([NAMED["omitted deletes"], NAMED["foreign events"]])

    assert report.is_within_bounds
    assert [each.struck for each in report.kinds.values()] == [1, 1]


@pytest.mark.usefixtures("libraries")
def test_late_replica_gives_current_hits() -> None:
    """Rows of a logical replica that is late are no hits once their events have come."""
    report = audited(OF_REPLICA, has_replica=True)

    assert report.is_within_bounds


@pytest.mark.usefixtures("libraries")
def test_unchecked_publication_is_found() -> None:
    """Without the check of publications, deleted rows are hits beyond the bound."""
    report = audited([NAMED["omitted deletes"]], changelog={"publication": UNCHECKED})

    assert not report.kinds["omitted deletes"].is_within_bound
