"""Short freshness audits: no row stays stale, and the audit finds sidecars without a fence.

`make audit` runs long ones. `SIDELOOK_CHAOS_SEED` repeats a run.
"""

import os
import random
from collections.abc import Sequence
from typing import Literal

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
    outlive_lease,
    write_nonsense,
)
from tools.freshness.naive_reader import LEASELESS
from tools.freshness.naive_sidecar import NAIVE, UNFENCED
from tools.freshness.world import AuditPlan

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))


def audited(plan: AuditPlan, faults: Sequence[Fault]) -> AuditReport:
    """The report of an audit with these faults, also printed."""
    report = audit_faults(plan, faults)
    print("\n".join(report.lines()))  # noqa: T201 -- shown when it fails
    return report


SHARES: Sequence[Literal["auto", "off"]] = ("auto", "off")
each_share = pytest.mark.parametrize("share", SHARES)


def check_shares(report: AuditReport) -> None:
    """With shared caches, streams read most cached rows themselves; otherwise none."""
    hits = report.outcomes["hit"] + report.checked["hit"]  # also by HTTP
    assert report.shared > hits / 2 if report.plan.share == "auto" else not report.shared


@each_share
@pytest.mark.usefixtures("libraries")
def test_followed_changelog_leaves_nothing_stale(share: Literal["auto", "off"]) -> None:
    """With a changelog that precedes visibility, every answer at rest equals the table."""
    faults = [freeze_standby, kill_broker, freeze_sidecar, freeze_standby, outlive_lease]
    faults += [lock_table, write_nonsense, commit_late, delay_answers, freeze_standby]
    plan = AuditPlan("changelog", "mixed", has_standby=True, share=share, seed=SEED)

    report = audited(plan, faults)

    assert report.stale == []
    assert report.struck.total() >= 8
    assert report.checked["hit"] > 0
    check_shares(report)
    assert report.figures["sidelook_fenced_keys_total"] > 0


@each_share
@pytest.mark.full
def test_heard_notifications_leave_nothing_stale(share: Literal["auto", "off"]) -> None:
    """With notifications lost with their connection, every answer at rest equals the table."""
    faults = [end_listening, freeze_network, crash_server, cut_network, empty_table, commit_late]
    faults += [outlive_lease]

    report = audited(AuditPlan("notifications", "mixed", share=share, seed=SEED), faults)

    assert report.stale == []
    assert report.struck.total() >= 5
    assert report.checked["hit"] > 0
    check_shares(report)


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


def test_read_without_a_lease_is_found() -> None:
    """A reader that ignores the lease reads rows that changed while the sidecar was stopped."""
    report = audited(AuditPlan("notifications", twin=LEASELESS, seed=SEED), [outlive_lease])

    assert report.stale
