"""Nothing stays stale, whatever dies while rows change; and the audit finds what would let it.

Short versions: `make audit` runs long ones. `SIDELOOK_CHAOS_SEED` repeats a run.
"""

import os
import random
from collections.abc import Sequence

import pytest

from tests.chaos.freshness_audit import AuditReport, audit_faults
from tests.chaos.freshness_faults import (
    Fault,
    commit_late,
    crash_server,
    cut_network,
    delay_answers,
    empty_table,
    end_listening,
    freeze_network,
    freeze_sidecar,
    freeze_standby,
    kill_broker,
    lock_table,
    write_nonsense,
)
from tests.chaos.freshness_world import AuditPlan
from tests.chaos.naive_sidecar import NAIVE, UNFENCED

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))


def audited(plan: AuditPlan, faults: Sequence[Fault]) -> AuditReport:
    """What an audit with these faults shows; printed, too."""
    report = audit_faults(plan, faults)
    print("\n".join(report.lines()))  # noqa: T201 -- shown when it fails
    return report


@pytest.mark.usefixtures("libraries")
def test_followed_changelog_leaves_nothing_stale() -> None:
    """By Kafka, some changes too early: all answers at rest are right, of whole tables, too."""
    faults = [freeze_standby, kill_broker, freeze_sidecar, freeze_standby]
    faults += [lock_table, write_nonsense, commit_late, delay_answers, freeze_standby]

    report = audited(AuditPlan("changelog", "mixed", has_standby=True, seed=SEED), faults)

    assert report.stale == []
    assert report.late_hits == 0
    assert report.struck.total() >= 8
    assert report.checked["hit"] > 0
    assert report.figures["sidelook_fenced_keys_total"] > 0


@pytest.mark.full
def test_heard_notifications_leave_nothing_stale() -> None:
    """By NOTIFY, some changes lost with their connection: all answers at rest are right."""
    faults = [end_listening, freeze_network, crash_server, cut_network, empty_table, commit_late]

    report = audited(AuditPlan("notifications", "mixed", seed=SEED), faults)

    assert report.stale == []
    assert report.late_hits == 0
    assert report.struck.total() >= 5
    assert report.checked["hit"] > 0


@pytest.mark.usefixtures("libraries")
@pytest.mark.full
def test_missing_fence_is_found() -> None:
    """A sidecar that takes each read after a change for one that saw it has stale rows."""
    plan = AuditPlan("changelog", has_standby=True, twin=UNFENCED, seed=SEED)

    report = audited(plan, [freeze_standby] * 3)

    assert report.stale


def test_naive_fill_is_found() -> None:
    """A sidecar that keeps whatever it has read, overtaken or not, has stale rows."""
    report = audited(AuditPlan("notifications", twin=NAIVE, seed=SEED), [delay_answers] * 3)

    assert report.stale
