"""How long a chunk may be, by what the ones before took."""

import pytest

from lookup_core.protocol.lookup_scheduler import CHUNK_S, LEAST_RECORDS, MOST_RECORDS, Quantum

HIT_S, MISS_S = 0.2e-6, 4e-6


def after(pace: Quantum, record_s: float, chunks: int) -> int:
    """The chunk size after so many full chunks at this cost."""
    for _ in range(chunks):
        pace.on_chunk(pace.records, pace.records * record_s)
    return pace.records


def test_start_is_cautious() -> None:
    """Nothing is known yet: a chunk is small enough even if every record has to be fetched."""
    assert Quantum().records == LEAST_RECORDS


def test_hits_make_chunks_large() -> None:
    """After a few chunks one takes about the time that it may."""
    sizes = [after(Quantum(), HIT_S, chunks) for chunks in (1, 2, 3, 4, 5)]

    assert sizes == pytest.approx([1600, 3200, 6400, 12800, CHUNK_S / HIT_S], abs=1)


def test_misses_make_chunks_small_again() -> None:
    """What gets slower is learned within a few chunks."""
    pace = Quantum(HIT_S)

    assert after(pace, MISS_S, 5) == pytest.approx(CHUNK_S / MISS_S, rel=0.1)


def test_chunk_is_bounded() -> None:
    """However quick it goes, and however slow, chunks are neither endless nor crumbs."""
    assert after(Quantum(), 0.0, 100) == MOST_RECORDS
    assert after(Quantum(), 1.0, 100) == LEAST_RECORDS


def test_fixed_costs_do_not_make_crumbs() -> None:
    """Chunks that cost more than they may, however small they are, stay as large as is useful."""
    pace = Quantum()

    for _ in range(20):
        pace.on_chunk(pace.records, 2 * CHUNK_S + pace.records * HIT_S)

    assert pace.records == LEAST_RECORDS


def test_crumbs_teach_little() -> None:
    """The last few records of a lookup cost what a chunk costs at the least: no hint at more."""
    pace = Quantum(HIT_S)
    before = pace.records

    pace.on_chunk(20, 0.0002)

    assert pace.records > before * 0.9


def test_single_outlier_is_not_believed() -> None:
    """A pause that had nothing to do with the lookups halves the way to it at most."""
    pace = Quantum(1e-6)

    pace.on_chunk(4000, 0.012)

    assert pace.record_s == pytest.approx(2e-6)
