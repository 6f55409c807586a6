"""The fuzzer itself: it runs, and for some minutes a night it finds nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.seeds import CORPUS

ROOT = Path(__file__).parents[2]
NIGHTLY_S = 240  # pytest ends what takes five minutes


def fuzz(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, because Arrow's faults end their process."""
    learned = folder / "learned"
    shutil.copytree(CORPUS, learned)
    command = [sys.executable, "-m", "tests.fuzz.frame_fuzzer", *options]
    command += [f"-artifact_prefix={folder}/", str(learned)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_fuzzer_finds_nothing(tmp_path: Path) -> None:
    """Minutes of inputs led by coverage give frames and violations, and nothing else."""
    pytest.importorskip("atheris")

    done = fuzz(tmp_path, f"-max_total_time={NIGHTLY_S}", "-print_final_stats=1")

    assert done.returncode == 0, done.stderr[-5_000:]
    assert "stat::number_of_executed_units" in done.stderr
