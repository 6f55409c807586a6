"""Short freshness audits: no row stays stale, and the audit finds sidecars without a fence.

`make audit` runs long ones. `SIDELOOK_CHAOS_SEED` repeats a run.
"""

import os
import random
from collections.abc import Sequence

import pytest

from tools.freshness.audit import AuditReport, audit_faults
from tools.freshness.faults import (
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
from tools.freshness.naive_sidecar import NAIVE, UNFENCED
from tools.freshness.world import AuditPlan

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))


def audited(plan: AuditPlan, faults: Sequence[Fault]) -> AuditReport:
    """The report of an audit with these faults, also printed."""
    report = audit_faults(plan, faults)
    print("\n".join(report.lines()))  # noqa: T201 -- shown when it fails
    return report


@pytest.mark.usefixtures("libraries")
def test_followed_changelog_leaves_nothing_stale() -> None:
    """With a changelog that precedes visibility, every answer at rest equals the table."""
    faults = [freeze_standby, kill_broker, freeze_sidecar, freeze_standby]
    faults += [lock_table, write_nonsense, commit_late, delay_answers, freeze_standby]

    report = audited(AuditPlan("changelog", "mixed", has_standby=True, seed=SEED), faults)

    assert report.stale == []
    assert report.struck.total() >= 8
    assert report.checked["hit"] > 0
    assert report.figures["sidelook_fenced_keys_total"] > 0


@pytest.mark.full
def test_heard_notifications_leave_nothing_stale() -> None:
    """With notifications lost with their connection, every answer at rest equals the table."""
    faults = [end_listening, freeze_network, crash_server, cut_network, empty_table, commit_late]

    report = audited(AuditPlan("notifications", "mixed", seed=SEED), faults)

    assert report.stale == []
    assert report.struck.total() >= 5
    assert report.checked["hit"] > 0


@pytest.mark.usefixtures("libraries")
@pytest.mark.full
def test_missing_fence_is_found() -> None:
    """A sidecar that assumes that reads after an event saw the change has stale rows."""
    plan = AuditPlan("changelog", has_standby=True, twin=UNFENCED, seed=SEED)

    report = audited(plan, [freeze_standby] * 3)

    assert report.stale


def test_naive_fill_is_found() -> None:
    """A sidecar that caches every read, also overtaken ones, has stale rows."""
    report = audited(AuditPlan("notifications", twin=NAIVE, seed=SEED), [delay_answers] * 3)

    assert report.stale
