"""One load of a sidecar that is measured against others, and the figures of its rounds.

What the loads are is `growth_cases`' business, who carries them out `client_processes`'.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.lookup_load import LoadSpan, LookupLoad


@dataclass(frozen=True, slots=True)
class LoadCase:
    """A point of a line."""

    series: str
    x: int
    loads: tuple[LookupLoad, ...]  # a process each, at the same time


@dataclass(frozen=True, slots=True)
class LoadRound:
    """What one round of a case took."""

    spans: tuple[LoadSpan, ...]  # of the processes
    sidecar_cpu_s: float

    @property
    def keys(self) -> int:
        """How many were looked up."""
        return sum(span.keys for span in self.spans)

    @property
    def uncached_keys(self) -> int:
        """How many of them the cache did not answer."""
        return self.keys - sum(span.hits for span in self.spans)

    @property
    def seconds(self) -> float:
        """From the first question of any process to the last answer of all."""
        return max(span.ended_s for span in self.spans) - min(span.begun_s for span in self.spans)


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """Medians of a case's rounds."""

    case: LoadCase
    rounds: Sequence[LoadRound]

    @property
    def lookups_per_second(self) -> float:
        """Keys looked up, by all processes together."""
        return statistics.median(each.keys / each.seconds for each in self.rounds)

    @property
    def bytes_per_second(self) -> float:
        """Of rows in the answers, as Arrow counts them."""
        return statistics.median(
            sum(span.row_bytes for span in each.spans) / each.seconds for each in self.rounds
        )

    @property
    def client_ns(self) -> float:
        """Processor time of all clients for a lookup."""
        return statistics.median(
            sum(span.cpu_s for span in each.spans) / each.keys * 1e9 for each in self.rounds
        )

    @property
    def sidecar_ns(self) -> float:
        """Processor time of the sidecar for a lookup."""
        return statistics.median(each.sidecar_cpu_s / each.keys * 1e9 for each in self.rounds)
