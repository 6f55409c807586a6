"""Processes that read a shared cache while another one changes it at full speed.

`SIDELOOK_RACE_S` sets the duration of the long race.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.chaos.shared_races import Counter, Integers, Race, ReaderCount, read, write
from tests.lookup_core.cache.broken_reader import WITHOUT_ANY
from tools.processes.until import until

READERS = 2
LONG_S = float(os.environ.get("SIDELOOK_RACE_S") or 60)
LONG_KEYS = 10**8  # probed
SHORT_KEYS = 2 * 10**6
WITHIN_S = 600.0
SHOWN = [each for each in ReaderCount if each is not ReaderCount.SIZE]


@pytest.fixture(params=["number", "text"])
def race(request: pytest.FixtureRequest) -> Iterator[Race]:
    """A folder in memory."""
    with TemporaryDirectory(prefix="sidelook-race-", dir="/dev/shm") as name:
        yield Race(Path(name), request.param)


def run(race: Race, is_over: Callable[[Integers], bool], faults: Mapping[str, str]) -> Integers:
    """The sums of the readers' counts when the race is over."""
    numbers = race.numbers()
    counts = [race.counts(reader) for reader in range(READERS)]
    with ProcessPoolExecutor(READERS + 1, mp_context=get_context("spawn")) as processes:
        runs = [processes.submit(write, race)]
        try:
            until(lambda: numbers[Counter.CHANGES] > 0 or runs[0].done())
            runs += [processes.submit(read, race, each, faults) for each in range(READERS)]

            def has_ended() -> bool:
                # The writer removes the files at the end: each reader must have opened them.
                have_begun = all(count[ReaderCount.PROBED] for count in counts)
                return have_begun and is_over(np.sum(counts, axis=0))

            until(lambda: has_ended() or any(each.done() for each in runs), within_s=WITHIN_S)
        finally:
            numbers[Counter.IS_OVER] = 1
        for each in runs:
            each.result()
    sums: Integers = np.sum(counts, axis=0)
    shown = ", ".join(f"{each.name} {sums[each]:,}" for each in SHOWN)
    changes = f"{numbers[Counter.CHANGES]:,} changes, {numbers[Counter.EVICTED]:,} evictions"
    print(f"{race.kind}: {shown}; {changes}")  # noqa: T201  # shown when it fails
    return sums


@pytest.mark.real_path
def test_readers_see_no_wrong_row(race: Race) -> None:
    """While rows are filled, invalidated and evicted, readers see rows of their keys only."""
    sums = run(race, lambda sums: sums[ReaderCount.PROBED] >= SHORT_KEYS, {})

    assert sums[ReaderCount.HITS] > SHORT_KEYS / 100
    assert sums[ReaderCount.MISSING] > 0
    assert (sums[ReaderCount.WRONG], sums[ReaderCount.OLD]) == (0, 0)


def test_unverified_reads_are_found(race: Race) -> None:
    """Readers that do not verify what they have gathered see rows of other keys, or old ones."""

    def is_over(sums: Integers) -> bool:
        return bool(sums[ReaderCount.WRONG] + sums[ReaderCount.OLD])

    assert is_over(run(race, is_over, WITHOUT_ANY))


def test_readers_see_no_wrong_row_for_long(race: Race) -> None:
    """The same for a minute at least, and a hundred million keys."""
    began_s = time.monotonic()

    def is_over(sums: Integers) -> bool:
        return bool(sums[ReaderCount.PROBED] >= LONG_KEYS) and time.monotonic() - began_s >= LONG_S

    sums = run(race, is_over, {})

    assert sums[ReaderCount.HITS] > LONG_KEYS / 100
    assert (sums[ReaderCount.WRONG], sums[ReaderCount.OLD]) == (0, 0)
