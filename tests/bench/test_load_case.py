"""The figures of a load."""

from bench.growth_cases import CaseFigures, LoadCase, LoadRound
from bench.lookup_load import LoadSpan


def _span(begun_s: float, ended_s: float, *, hits: int = 100) -> LoadSpan:
    return LoadSpan(begun_s, ended_s, cpu_s=1e-4, keys=100, hits=hits, row_bytes=400)


def test_round_lasts_from_first_to_last() -> None:
    """Processes that begin or end apart are one load."""
    together = LoadRound((_span(1.0, 3.0), _span(1.5, 5.0, hits=90)), sidecar_cpu_s=0.0)

    assert together.seconds == 4.0
    assert (together.keys, together.uncached_keys) == (200, 10)


def test_figures_are_medians_of_rounds() -> None:
    """One round that was disturbed does not count."""
    rounds = [LoadRound((_span(0.0, seconds),), sidecar_cpu_s=2e-4) for seconds in (1.0, 9.0, 2.0)]

    figures = CaseFigures(LoadCase("one", 1, ()), rounds)

    assert figures.lookups_per_second == 50.0
    assert figures.bytes_per_second == 200.0
    assert (figures.client_ns, figures.sidecar_ns) == (1000.0, 2000.0)
