"""What carrying out a dimension's lookups has cost: where a new channel starts.

Every channel learns on its own, because one may find all in the cache and its neighbour nothing;
only the start is shared, so that short tasks need not be cautious each time anew.
"""

from copy import copy
from dataclasses import dataclass, field

from lookup_core.protocol.answer_size import FIRST_GUESS_BYTES, AnswerSize
from lookup_core.protocol.chunk_pace import ChunkPace


@dataclass(frozen=True, slots=True)
class Costs:
    """Of the records of one channel."""

    pace: ChunkPace = field(default_factory=ChunkPace)
    size: AnswerSize = field(default_factory=AnswerSize)


class LearnedCosts:
    """The costs of the newest channel of each dimension, which need not be open any more.

    `guess_bytes` is what the answer to a record has while nothing is known of a dimension.
    """

    def __init__(self, guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._guess_bytes = guess_bytes
        self._newest: dict[str, Costs] = {}  # {dimension: of its newest channel}

    def newcomer(self, dimension: str) -> Costs:
        """The costs that a new channel starts with, its own from now on."""
        known = self._newest.get(dimension) or Costs(size=AnswerSize(self._guess_bytes))
        costs = self._newest[dimension] = Costs(copy(known.pace), copy(known.size))
        return costs
