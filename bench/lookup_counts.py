"""How a sidecar's lookups ended, as its metrics tell, and whether clients got what they came for.

Counting and judging only; who asks, and for how long, is the parts' business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from demo.dimension_counts import LOOKUPS, dimension_counts

_CHANNELS = "sidelook_channels"
_WITH_ROW = ("hit", "fetched")
_FAILED = ("timeout", "error")


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """Keys of one dimension, by how their lookup ended; and who may ask for more."""

    with_row: int
    failed: int
    channels: int = 0  # open now

    @classmethod
    def of(cls, metrics: str, dimension: str) -> Self:
        """Those of a page of metrics."""
        lookups = dimension_counts(metrics, dimension, LOOKUPS)
        return cls(
            with_row=sum(lookups.get(outcome, 0) for outcome in _WITH_ROW),
            failed=sum(lookups.get(outcome, 0) for outcome in _FAILED),
            channels=sum(dimension_counts(metrics, dimension, _CHANNELS).values()),
        )

    def since(self, earlier: "LookupCounts") -> "LookupCounts":
        """What was added."""
        with_row, failed = self.with_row - earlier.with_row, self.failed - earlier.failed
        return LookupCounts(with_row, failed, self.channels)

    def faults(self, fewest_rows: int) -> list[str]:
        """Too few rows, or more failures than rows: then something else was measured."""
        found = []
        if self.with_row < fewest_rows:
            found.append(f"the clients got {self.with_row:,} rows only, not {fewest_rows:,}")
        if self.failed > self.with_row:
            found.append(f"{self.failed:,} lookups failed, {self.with_row:,} ended with a row")
        return found


def ended_clients(exit_codes: Sequence[int | None]) -> list[str]:
    """A fault if there is one among the clients that ask without end; None: it still runs."""
    ended = [code for code in exit_codes if code is not None]
    if not ended:
        return []
    return [f"{len(ended)} of {len(exit_codes)} clients ended: {list(dict.fromkeys(ended))}"]


def unfinished_clients(exit_codes: Sequence[int | None]) -> list[str]:
    """A fault if one of the clients that come to an end failed, or still runs."""
    unfinished = [code for code in exit_codes if code != 0]
    if not unfinished:
        return []
    codes = list(dict.fromkeys(unfinished))
    return [f"{len(unfinished)} of {len(exit_codes)} clients did not finish: {codes}"]
