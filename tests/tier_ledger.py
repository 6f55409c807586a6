"""Gives each test the tier of its folder, and fails a run that tested less than it claims.

A plugin of pytest, for one process or several workers; says nothing about how good tests are.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

TIERS = ("unit", "conformance", "integration", "end_to_end", "chaos")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the whole run insist on all tiers, and let the slow tests in."""
    group = parser.getgroup("sidelook")
    group.addoption("--every-tier", action="store_true", help="fail unless tests of all tiers ran")
    group.addoption("--nightly", action="store_true", help="run the tests marked nightly, too")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the ledger of this run; a worker reports to the process that keeps it."""
    if hasattr(config, "workerinput"):
        return
    ledger = TierLedger(
        needs_every_tier=bool(config.getoption("--every-tier")),
        may_skip=os.environ.get("CI", "").lower() not in {"1", "true"},
    )
    config.pluginmanager.register(ledger, "tier-ledger")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the tier of its folder, fastest tier first; hold back the slow ones."""
    tiers = {item: _tier_of(item) for item in items}
    for item, tier in tiers.items():
        is_nightly = item.get_closest_marker("nightly") is not None
        item.add_marker(tier)
        # A worker's reports take these along; of markers they keep names, which folders have, too.
        item.user_properties += [("tier", tier), ("nightly", is_nightly)]
        if is_nightly and not config.getoption("--nightly"):
            item.add_marker(pytest.mark.skip(reason="nightly: run with --nightly"))
    items.sort(key=lambda item: TIERS.index(tiers[item]))


class TierLedger:
    """Which tiers ran how many tests, and what was skipped; decides whether that is a failure."""

    def __init__(self, *, needs_every_tier: bool, may_skip: bool) -> None:
        self._needs_every_tier = needs_every_tier
        self._may_skip = may_skip
        self._passed: Counter[str] = Counter()  # {tier: tests}
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that passed, note one that was skipped."""
        told = dict(report.user_properties)
        if report.when == "call" and report.passed:
            self._passed[str(told["tier"])] += 1
        is_expected = hasattr(report, "wasxfail") or told.get("nightly")
        if report.skipped and not is_expected:
            self._skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that was skipped as a whole."""
        if report.skipped:
            self._skipped.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)  # before the summary is written
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turn a run that tested less than it claims into a failure."""
        if session.exitstatus == pytest.ExitCode.OK and any(self._faults()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which tiers ran, and why that is not enough."""
        counts = ", ".join(f"{tier} {self._passed[tier]}" for tier in TIERS)
        terminalreporter.write_line(f"passed by tier: {counts}")
        for fault in self._faults():
            terminalreporter.write_line(f"FAILED: {fault}", red=True)

    def _faults(self) -> Iterator[str]:
        if self._needs_every_tier:
            yield from (f"no test of tier {tier} ran" for tier in TIERS if not self._passed[tier])
        if not self._may_skip:
            yield from (f"skipped under CI: {name}" for name in self._skipped)


def _tier_of(item: pytest.Item) -> str:
    marked = [mark.name for mark in item.iter_markers() if mark.name in TIERS]
    if marked:
        return marked[0]
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    return folder if folder in TIERS else "unit"
