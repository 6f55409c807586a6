"""Runs of pytest that test less than they claim fail, in one process and with two workers."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PASSES = "def test_passes(): pass"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('no such thing here')"
SKIPPED_WHOLE = "import pytest\npytest.skip('no such thing here', allow_module_level=True)"
NIGHTLY = "import pytest\n@pytest.mark.nightly\ndef test_takes_long(): pass"
MARKED_CHAOS = f"import pytest\npytestmark = pytest.mark.chaos\n{PASSES}"
ALL_TIERS = {
    "chaos/test_a.py": PASSES,
    "end_to_end/test_b.py": PASSES,
    "integration/test_c.py": PASSES,
    "conformance/test_d.py": PASSES,
    "elsewhere/test_e.py": PASSES,
}
WORKERS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
PLUGINS = ("-p", "xdist.plugin", "-p", "tests.tier_ledger", "-p", "no:cacheprovider")


@pytest.fixture(params=[(), WORKERS], ids=["one process", "two workers"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> "Run":
    """A run in a folder of its own, by this process or by two workers."""
    return Run(tmp_path, request.param)


class Run:
    """A run of pytest under CI."""

    def __init__(self, folder: Path, workers: tuple[str, ...]) -> None:
        self._folder = folder
        self._workers = workers
        self.lines: list[str] = []

    def of(self, files: Mapping[str, str], *arguments: str) -> int:
        """The exit code of a run of these files."""
        for name, text in files.items():
            path = self._folder / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, "-m", "pytest", *PLUGINS, *self._workers, *arguments]
        # Not the usual folder: whoever starts there closes it to the user of others' PostgreSQL.
        places = [f"--basetemp={self._folder / 'made'}", f"--rootdir={self._folder}"]
        environ = {"PYTHONPATH": str(ROOT), "CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        ended = subprocess.run(
            [*command, *places, str(self._folder / "tests")],
            cwd=self._folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        self.lines = ended.stdout.splitlines()
        return ended.returncode


def test_passed_tests_count_by_tier(run: Run) -> None:
    """The folder gives the tier, a marker overrides it; all tiers together are enough."""
    files = ALL_TIERS | {"elsewhere/test_f.py": MARKED_CHAOS}

    ended = run.of(files, "--every-tier")

    counts = "passed by tier: unit 1, conformance 1, integration 1, end_to_end 1, chaos 2"
    assert (ended, counts in run.lines) == (0, True), run.lines


def test_missing_tier_fails_the_run(run: Run) -> None:
    """Who asks for every tier does not get a run without one, though all its tests pass."""
    files = {name: text for name, text in ALL_TIERS.items() if name != "chaos/test_a.py"}

    ended = run.of(files, "--every-tier")

    assert (ended, "FAILED: no test of tier chaos ran" in run.lines) == (1, True), run.lines


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param(SKIPS, "tests/test_s.py::test_skips", id="test"),
        pytest.param(SKIPPED_WHOLE, "tests/test_s.py", id="module"),
    ],
)
def test_silent_skip_fails_the_run(run: Run, text: str, name: str) -> None:
    """Under CI a skipped test or module is a failure, and told once."""
    ended = run.of({"test_s.py": text, "test_p.py": PASSES})

    told = [line for line in run.lines if line.startswith("FAILED: ")]
    assert (ended, told) == (1, [f"FAILED: skipped under CI: {name}"]), run.lines


def test_nightly_tests_may_be_skipped(run: Run) -> None:
    """What is too slow for every change is skipped without a failure, and runs when asked for."""
    files = {"test_n.py": NIGHTLY, "test_p.py": PASSES}

    ended = [run.of(files), run.of(files, "--nightly")]

    counts = "passed by tier: unit 2, conformance 0, integration 0, end_to_end 0, chaos 0"
    assert (ended, counts in run.lines) == ([0, 0], True), run.lines


def test_fastest_tiers_run_first(run: Run) -> None:
    """A broken unit fails before the slow tests begin."""
    run.of(ALL_TIERS, "-v", "--maxprocesses=1")

    passed = re.findall(r"PASSED.* tests/(\w+)/|tests/(\w+)/.* PASSED", "\n".join(run.lines))
    tiers = ["elsewhere", "conformance", "integration", "end_to_end", "chaos"]
    assert ["".join(names) for names in passed] == tiers, run.lines
