"""A channel that answers in any order and in any parts, for tests of the operator.

No thread, connection or clock: which answers come when is decided by a seed alone. For the way
over frames there is `fake_sidecar`.
"""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys

COLUMNS = pa.schema({"value": pa.int64()})
_MOST_PARTS = 3  # that come at once
_MOST_KEYS = 3  # of one part


class ShufflingChannel:
    """A `LookupChannel` to a dimension whose every key, NULL too, is its own value."""

    columns = COLUMNS
    versions = None

    def __init__(self, seed: int, *, silence: float) -> None:
        """`silence`: how probable it is that nothing comes as long as somebody waits."""
        self.now_s = 0.0
        self._chance = random.Random(seed)  # noqa: S311 -- repeatable
        self._silence = silence
        self._asked: dict[QuestionId, pa.RecordBatch] = {}
        self._open: dict[QuestionId, list[int]] = {}  # {question: keys without an answer}

    def ask(self, asked: SentKeys) -> None:
        """See `LookupChannel`."""
        self._asked[asked.question] = asked.keys
        self._open[asked.question] = list(range(asked.count))

    def mark(self, watermark_ms: int) -> None:
        """See `LookupChannel`; it tells nobody."""

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """See `LookupChannel`."""
        if timeout_s and self._chance.random() < self._silence:
            self.now_s += timeout_s
            return []
        parts = self._chance.randint(0 if timeout_s == 0 else 1, _MOST_PARTS)
        return [self._part() for _ in range(parts) if self._open]

    def abandon(self, question: QuestionId) -> None:
        """See `LookupChannel`; the answers come all the same, too late."""

    def awaiting_input(self) -> AbstractContextManager[None]:
        """See `LookupChannel`."""
        return nullcontext()

    def close(self) -> None:
        """See `LookupChannel`."""

    def _part(self) -> ChannelAnswer:
        question = self._chance.choice(list(self._open))
        still_open = self._open[question]
        self._chance.shuffle(still_open)
        chosen, left = still_open[:_MOST_KEYS], still_open[_MOST_KEYS:]
        if left:
            self._open[question] = left
        else:
            del self._open[question]
        rows = pa.record_batch([self._asked[question].column(0).take(pa.array(chosen))], COLUMNS)
        outcomes = np.full(len(chosen), Outcome.HIT, np.uint8)
        ages_ms = np.zeros(len(chosen), np.uint32)
        return ChannelAnswer(question, Answer(np.array(chosen, np.int32), outcomes, ages_ms, rows))
