"""Short audits of incomplete feeds: hits are wrong within the bounds, and the audit finds others.

`make audit` runs a long one. `SIDELOOK_CHAOS_SEED` repeats a run.
"""

import os
import random
from typing import Any

import pytest

from service.config.refresh import UNCHECKED
from tools.freshness.incomplete.connector_faults import (
    ALTERED_EARLY,
    SETTINGS,
    SKIPPED_DELETES,
)
from tools.freshness.incomplete.feed_faults import (
    FOREIGN_EVENTS,
    LATE_REPLICA,
    OMITTED_OPERATION,
    FeedFault,
)
from tools.freshness.incomplete.run import IncompleteReport, audit_incomplete
from tools.freshness.world import AuditPlan

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))


def audited(*faults: FeedFault, **settings: Any) -> IncompleteReport:  # noqa: ANN401  # of a plan
    """The report on these faults, also printed."""
    plan = AuditPlan("changelog", "mixed", **{**SETTINGS, "seed": SEED, **settings})
    report = audit_incomplete(plan, faults)
    print("\n".join(report.lines()))  # noqa: T201 -- shown when it fails
    return report


@pytest.mark.usefixtures("libraries")
def test_incomplete_feed_keeps_its_bound() -> None:
    """While a feed omits or alters changes, no hit is wrong for longer than its bound."""
    report = audited(FOREIGN_EVENTS, ALTERED_EARLY, OMITTED_OPERATION, SKIPPED_DELETES)

    assert report.is_within_bounds
    assert [each.struck for each in report.kinds.values()] == [1, 1, 1, 1]


@pytest.mark.usefixtures("libraries")
def test_late_replica_gives_current_hits() -> None:
    """Rows of a logical replica that is late are no hits once their events have come."""
    report = audited(LATE_REPLICA, has_replica=True)

    assert report.is_within_bounds


@pytest.mark.usefixtures("libraries")
def test_unchecked_publication_is_found() -> None:
    """Without checks and audits, rows whose changes are not published are hits beyond the bound."""
    report = audited(OMITTED_OPERATION, changelog={"publication": UNCHECKED}, audit=None)

    assert not report.kinds["omitted operation"].is_within_bound


@pytest.mark.usefixtures("libraries")
def test_unaudited_connector_is_found() -> None:
    """Without audits, rows whose deletion a connector skips are hits beyond the bound."""
    report = audited(SKIPPED_DELETES, audit=None)

    assert not report.kinds["skipped deletes"].is_within_bound
