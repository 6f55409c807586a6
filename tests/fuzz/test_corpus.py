"""The frame decoders accept a frame or refuse it, for the corpus, mutations and the fuzzer."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.frames import CORPUS, name_of, seeds, take

ROOT = Path(__file__).parents[2]
ENTRIES = sorted(CORPUS.iterdir())
SEEDS = list(seeds())
NIGHTLY_S = 240  # below the timeout of a test


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name[:12])
def test_entry_is_accepted_or_refused(entry: Path) -> None:
    """Each entry is a violation, or a frame that equals itself after encoding and decoding."""
    assert take(entry.read_bytes()) in {True, False}


def test_seeds_are_frames_of_the_corpus() -> None:
    """Every seed is accepted and in the corpus, and the corpus stays small."""
    assert [name_of(seed) for seed in SEEDS if not take(seed)] == []
    assert {name_of(seed) for seed in SEEDS} <= {entry.name for entry in ENTRIES}
    assert len(ENTRIES) < 300
    assert sum(entry.stat().st_size for entry in ENTRIES) < 300_000


def mutated(data: bytes, seed: int) -> bytes:
    """The data with up to three bytes or numbers replaced, removed or repeated."""
    chance = random.Random(seed)  # noqa: S311  repeatable
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        size = chance.choice((1, 1, 4, 8))
        number = chance.choice((0, 1, 7, 2**31 - 1, 2**53, chance.randrange(256)))
        replacement = number.to_bytes(8, "little", signed=False)[:size]
        data = (
            data[:at]
            + chance.choice((replacement, replacement, b"", data[at : at + 9]))
            + data[at + size :]
        )
    return data


@pytest.mark.parametrize("start", range(0, 4_000, 500))
def test_mutants_fail_cleanly(start: int) -> None:
    """Seeds with changed bytes are violations or frames, and nothing else."""
    taken = [take(mutated(SEEDS[seed % len(SEEDS)], seed)) for seed in range(start, start + 500)]

    assert {True, False} == set(taken)


@pytest.mark.full
def test_fuzzer_finds_nothing(tmp_path: Path) -> None:
    """Minutes of coverage-guided inputs give frames and violations, and nothing else."""
    pytest.importorskip("atheris")
    shutil.copytree(CORPUS, tmp_path / "learned")
    options = [f"-max_total_time={NIGHTLY_S}", "-print_final_stats=1"]
    folders = [f"-artifact_prefix={tmp_path}/", str(tmp_path / "learned")]
    # A process of its own, because a fault of Arrow ends its process. It starts from a shell:
    # libFuzzer limits the peak memory, and a new process inherits the peak of its parent.
    fuzzer = [sys.executable, "-m", "tests.fuzz.fuzzer", *options, *folders]
    command = ["sh", "-c", '"$@"; exit $?', "sh", *fuzzer]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-5_000:]
    assert "stat::number_of_executed_units" in done.stderr
