"""A run of pytest that tests less than its tiers fails."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PASSES = "def test_passes(): pass\n"
REAL = "import pytest\n@pytest.mark.real_path\ndef test_real(): pass\n"
FULL = "import pytest\n@pytest.mark.full\ndef test_long(): pass\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('no such thing here')\n"
TREE = {"core/test_a.py": PASSES + FULL, "integration/test_b.py": PASSES + REAL}
CHOSEN = ("--tier", "test")
WORKERS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


@pytest.mark.parametrize(
    ("tree", "arguments", "passed", "faults"),
    [
        (TREE, CHOSEN, "check 1, real_path 1, full 0, nightly 0", []),
        (
            {"core/test_a.py": PASSES + SKIPS},
            WORKERS,
            "check 1, real_path 0, full 0, nightly 0",
            ["FAILED: skipped under CI: tests/core/test_a.py::test_skips"],
        ),
        (
            {"core/test_a.py": PASSES},
            CHOSEN,
            "check 1, real_path 0, full 0, nightly 0",
            ["FAILED: no test of tier real_path ran"],
        ),
    ],
    ids=["chosen", "skipped", "absent"],
)
def test_run_has_the_chosen_tiers(
    tmp_path: Path, tree: dict[str, str], arguments: tuple[str, ...], passed: str, faults: list[str]
) -> None:
    """A run has its tiers; it fails under CI if a test is skipped or a tier has none."""
    ended = run(tmp_path, tree, *arguments)

    assert ended == (1 if faults else 0, f"passed by tier: {passed}", faults)


def run(folder: Path, tree: dict[str, str], *arguments: str) -> tuple[int, str, list[str]]:
    """The exit code, the line of counts and the faults of a run under CI."""
    for name, text in tree.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n check: -\n real_path: -\n full: -\n nightly: -\n"
    )
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
