"""What a lookup got at once, and how it gets the rest.

Shapes only: the engine fills them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lookup_core.answer import Answer
from lookup_core.dimension.flight_table import LookupId

Deliver = Callable[[Answer, bool], None]  # an answer, and whether it is the lookup's last


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a lookup got at once; more is delivered unless `is_done`."""

    lookup_id: LookupId
    answers: list[Answer]
    is_done: bool
