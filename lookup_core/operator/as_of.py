"""The times of the records that ask about one run, and how each finds its version.

Values only: the question keeps what was found.
"""

from dataclasses import dataclass

from lookup_core.operator.moments import NEVER_US, Moments
from lookup_core.operator.version_pick import VersionPick


@dataclass(frozen=True, slots=True)
class AsOf:
    """`times_us`: one for each record; `NEVER_US` finds no version."""

    times_us: Moments
    pick: VersionPick

    @property
    def event_time_ms(self) -> int | None:
        """The largest of the times, rounded down; None if no record has one."""
        largest_us = int(self.times_us.max(initial=NEVER_US))
        return None if largest_us == NEVER_US else largest_us // 1000
