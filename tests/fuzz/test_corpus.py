"""What the fuzzer learned and found, tried again at every change."""

from pathlib import Path

import pytest

from tests.fuzz.frame_mutator import mutated
from tests.fuzz.frame_target import take
from tests.fuzz.seeds import CORPUS, name_of, seeds

ENTRIES = sorted(CORPUS.iterdir())
SEEDS = list(seeds())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name[:12])
def test_entry_is_a_frame_or_refused(entry: Path) -> None:
    """Each entry is refused as a violation, or is a frame that survives the way out and in."""
    assert take(entry.read_bytes()) in {True, False}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: name_of(seed)[:12])
def test_seed_is_a_frame_in_the_corpus(seed: bytes) -> None:
    """What the fuzzer starts from is not refused, and stands in the corpus."""
    assert take(seed)
    assert (CORPUS / name_of(seed)).read_bytes() == seed


def test_corpus_stays_small() -> None:
    """What is learned is merged, not piled up."""
    assert len(ENTRIES) < 300
    assert sum(entry.stat().st_size for entry in ENTRIES) < 300_000


@pytest.mark.parametrize("start", range(0, 4_000, 500))
def test_mutants_fail_cleanly(start: int) -> None:
    """Some changes of the kind that the fuzzer makes are tried without it, too."""
    taken = [take(mutated(SEEDS[seed % len(SEEDS)], seed)) for seed in range(start, start + 500)]

    assert {True, False} == set(taken)
