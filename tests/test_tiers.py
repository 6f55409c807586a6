"""A run of pytest that tests less than its tiers fails."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PASSES = "def test_passes(): pass\n"
REAL = "import pytest\n@pytest.mark.real_path\ndef test_real(): pass\n"
FULL = "import pytest\n@pytest.mark.full\ndef test_long(): pass\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('no such thing here')\n"
TREE = {"core/test_a.py": PASSES + FULL, "integration/test_b.py": PASSES + REAL}
WORKERS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def test_run_has_the_chosen_tiers(tmp_path: Path) -> None:
    """A run has its tiers, by folder and by mark."""
    counts = "passed by tier: check 1, real_path 1, full 0"

    assert run(tmp_path, TREE, "--tier", "test") == (0, counts, [])


def test_skip_under_ci_fails(tmp_path: Path) -> None:
    """A test that a worker skips fails a run under CI."""
    code, _, faults = run(tmp_path, {"core/test_a.py": PASSES + SKIPS}, *WORKERS)

    assert (code, faults) == (1, ["FAILED: skipped under CI: tests/core/test_a.py::test_skips"])


def test_absent_tier_fails(tmp_path: Path) -> None:
    """A run without any test of one of its tiers fails."""
    code, _, faults = run(tmp_path, {"core/test_a.py": PASSES}, "--tier", "test")

    assert (code, faults) == (1, ["FAILED: no test of tier real_path ran"])


def run(folder: Path, tree: dict[str, str], *arguments: str) -> tuple[int, str, list[str]]:
    """The exit code, the line of counts and the faults of a run under CI."""
    for name, text in tree.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n check: -\n real_path: -\n full: -\n")
    plugins = ("-p", "xdist.plugin", "-p", "tests.tiers", "-p", "no:cacheprovider")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments, "--basetemp", folder / "made"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ended.stdout.splitlines()
    counts = [line for line in lines if line.startswith("passed by tier")]
    return ended.returncode, "".join(counts), [line for line in lines if line.startswith("FAILED:")]
