"""The port of a single check.

Each part of a sidecar's surroundings has an adapter of it beside this module.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from service.doctor.finding import Finding, Matter
from service.doctor.server_demand import ServerDemand

Seen = Finding | ServerDemand  # what stands by itself, and what is judged with that of others


class Check(Protocol):
    """Looks at one thing, and changes nothing."""

    @property
    def matter(self) -> Matter:
        """What is looked at; who has no answer in time is told of by it."""

    def findings(self) -> AsyncGenerator[Seen, None]:
        """What was seen, each as soon as it is known: what comes later may hang.

        What can be expected to fail is a finding. Any exception is one, too, of the check itself.
        Cancellation leaves no connection behind. It may run in a process of its own, so that what
        it keeps for other checks is there for those of its group only.
        """
