"""History of the status page: a ring of samples of each dimension's totals, of ten minutes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lookup_core.answer import Outcome
from service.engine.dimension import Dimension
from service.http.replies import models

PERIOD_S = 5.0
KEPT_S = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class StatusHistory:
    """Outcomes, queries and keys of queries since the start, every five seconds.

    A sample takes 72 bytes per dimension, so a hundred dimensions take less than 1 MiB.
    """

    dimensions: Mapping[str, Dimension]
    clock: Callable[[], float] = time.monotonic
    # Pairs of a time and the totals [dimension, figure], oldest first.
    _samples: deque[tuple[float, npt.NDArray[np.int64]]] = field(
        default_factory=lambda: deque(maxlen=int(KEPT_S / PERIOD_S) + 1)
    )

    async def run(self) -> None:
        """Take a sample every `PERIOD_S` until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(PERIOD_S)

    def sample(self) -> None:
        """Add the totals of now; the oldest sample of a full ring is dropped."""
        totals = [_totals(each) for each in self.dimensions.values()]
        self._samples.append((self.clock(), np.array(totals, np.int64)))

    def reply(self) -> models.StatusHistoryReply:
        """All samples, as columns of each dimension."""
        now = self.clock()
        names = list(self.dimensions)
        return models.StatusHistoryReply(
            ages_s=[now - at for at, _ in self._samples],
            dimensions=[
                _columns(name, [totals[place] for _, totals in self._samples])
                for place, name in enumerate(names)
            ],
        )


def _totals(dimension: Dimension) -> list[int]:
    outcomes = dimension.statistics().outcomes
    record = dimension.record
    return [*(outcomes[outcome] for outcome in Outcome), record.queries, record.batch_keys]


def _columns(name: str, samples: list[npt.NDArray[np.int64]]) -> models.DimensionHistory:
    figures = np.array(samples, np.int64).reshape(len(samples), len(Outcome) + 2).T.tolist()
    *outcomes, queries, batch_keys = figures
    return models.DimensionHistory(
        name=name,
        lookups={each.label: counts for each, counts in zip(Outcome, outcomes, strict=True)},
        queries=queries,
        batch_keys=batch_keys,
    )
