"""Tiers of tests: `check`, `real_path`, `full` and `nightly`, and runs that fail without a tier.

A plugin of pytest, for one process or several workers. `--tier check` runs the first tier,
`--tier test` the first two, `--tier all` the first three, `--tier nightly` the last one alone.
Without the option, all collected tests run.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TIERS = ("check", "real_path", "full", "nightly")
RUNS = {"check": TIERS[:1], "test": TIERS[:2], "all": TIERS[:3], "nightly": TIERS[3:]}
# Tests of these folders start real things; they are `full` unless they are marked `real_path`.
HEAVY_FOLDERS = ("chaos", "cluster", "end_to_end", "fuzz", "integration")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the tiers."""
    group = parser.getgroup("sidelook")
    group.addoption("--tier", choices=tuple(RUNS), help="run the tests of this run's tiers")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the ledger in the controlling process; workers report to it."""
    if hasattr(config, "workerinput"):
        return
    ledger = TierLedger(
        RUNS.get(config.getoption("--tier"), ()),
        may_skip=os.environ.get("CI", "").lower() not in {"1", "true"},
    )
    config.pluginmanager.register(ledger, "tier-ledger")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders without a test of the chosen tiers: their imports alone take seconds."""
    is_heavy = collection_path.is_dir() and _folder_of(collection_path, config) in HEAVY_FOLDERS
    return True if is_heavy and config.getoption("--tier") == "check" else None


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, select the chosen tiers, and run the quickest tier first."""
    tiers = {item: _tier_of(item) for item in items}
    for item, tier in tiers.items():
        item.add_marker(tier)
        item.user_properties.append(("tier", tier))  # reports of workers carry it
    chosen = RUNS.get(config.getoption("--tier"), TIERS)
    deselected = [item for item in items if tiers[item] not in chosen]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
    items[:] = sorted(
        (item for item in items if tiers[item] in chosen),
        key=lambda item: TIERS.index(tiers[item]),
    )


class TierLedger:
    """Counts the tests that passed in each tier, and the skipped ones; decides on failure."""

    def __init__(self, tiers: tuple[str, ...], *, may_skip: bool) -> None:
        self._tiers = tiers
        self._may_skip = may_skip
        self._passed: Counter[str] = Counter()  # {tier: tests}
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that passed, note one that was skipped."""
        if report.when == "call" and report.passed:
            self._passed[str(dict(report.user_properties)["tier"])] += 1
        if report.skipped and not hasattr(report, "wasxfail"):
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
        """Print the counts, and why they are not enough."""
        counts = ", ".join(f"{tier} {self._passed[tier]}" for tier in TIERS)
        terminalreporter.write_line(f"passed by tier: {counts}")
        for fault in self._faults():
            terminalreporter.write_line(f"FAILED: {fault}", red=True)

    def _faults(self) -> Iterator[str]:
        yield from (f"no test of tier {tier} ran" for tier in self._tiers if not self._passed[tier])
        if not self._may_skip:
            yield from (f"skipped under CI: {name}" for name in self._skipped)


def _tier_of(item: pytest.Item) -> str:
    for tier in reversed(TIERS):  # the slowest tier of several marks counts
        if item.get_closest_marker(tier) is not None:
            return tier
    return "full" if _folder_of(item.path, item.config) in HEAVY_FOLDERS else "check"


def _folder_of(path: Path, config: pytest.Config) -> str:
    tests = config.rootpath / "tests"
    return path.relative_to(tests).parts[0] if path.is_relative_to(tests) and path != tests else ""
