"""Search for the number of concurrent queries with most keys per second."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from lookup_core.protection.throughput_search import ThroughputSearch

KEYS = 1_000  # of each query
MOST = 8


@dataclass(frozen=True, slots=True)
class Backend:
    """A server that divides its processors among the queries."""

    processors: int
    distance_s: float = 0.0  # round trip, during which a query uses no processor
    work_s: float = 0.01  # of a processor, for one query
    crowd_cost: float = 0.0  # more work per query beyond the processors, as a share

    def query_s(self, concurrent: int) -> float:
        """The time of a query next to others."""
        crowd = max(concurrent - self.processors, 0)
        share = max(concurrent / self.processors, 1.0)
        return self.distance_s + self.work_s * (1 + self.crowd_cost * crowd) * share

    def rate(self, concurrent: int) -> float:
        """Keys per second."""
        return concurrent * KEYS / self.query_s(concurrent)


def limits(
    search: ThroughputSearch, backend: Backend, queries: int, *, now: float = 0.0
) -> Iterator[int]:
    """The limit for each of several queries, which follow each other without a gap."""
    for number in range(queries):
        concurrent = search.limit
        now += backend.query_s(concurrent) / concurrent
        # Some queries are slower than others.
        noise_s = 0.002 * backend.work_s * (number % 7 - 3)
        sent_at = now - backend.query_s(concurrent)
        search.on_success(KEYS, sent_at=sent_at, now=now + noise_s, in_flight=concurrent)
        search.check_invariants()
        yield concurrent


@pytest.mark.parametrize(
    ("backend", "best"),
    [
        (Backend(1, crowd_cost=0.2), 2),
        (Backend(3, crowd_cost=0.2), 3),
        (Backend(32), 8),
        (Backend(2, distance_s=0.2), 8),
        (Backend(4, distance_s=0.004, crowd_cost=0.05), 4),
    ],
    ids=["one processor", "few processors", "many processors", "distant", "near"],
)
def test_limit_reaches_most_throughput(backend: Backend, best: int) -> None:
    """The limit stays near the number of queries that answers most keys per second."""
    found = [*limits(ThroughputSearch(MOST), backend, 6_000)][3_000:]

    assert max(set(found), key=found.count) == best
    assert sum(map(backend.rate, found)) / len(found) > 0.9 * max(
        map(backend.rate, range(2, MOST + 1))
    )


def test_fewer_queries_are_better_among_equals() -> None:
    """If the rate is the same for any number of queries, the limit falls to two."""
    assert [*limits(ThroughputSearch(MOST), Backend(1), 2_000)][-1] == 2


def test_limit_follows_the_backend() -> None:
    """If a backend gets more processors, its limit rises again."""
    search = ThroughputSearch(MOST)
    before = [*limits(search, Backend(1, crowd_cost=0.2), 4_000)][-1000:]
    after = [*limits(search, Backend(32), 8_000, now=1000.0)][-1000:]

    assert max(set(before), key=before.count) == 2
    assert max(set(after), key=after.count) == MOST


def test_idle_slots_stop_the_search() -> None:
    """The rate of a backend with free slots says nothing of the limit."""
    search = ThroughputSearch(MOST)
    for number in range(1_000):
        in_flight = MOST if number % 20 else 1
        search.on_success(KEYS, sent_at=float(number), now=number + 0.5, in_flight=in_flight)

    assert search.limit == MOST
