"""Check port of the doctor, and what dimensions demand of a server."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from service.doctor.backends.postgres_server import PostgresServer
from service.doctor.finding import Finding, Subject


@dataclass(frozen=True, slots=True)
class ServerDemand:
    """The connections of one executor; the address has no password."""

    address: str
    server: PostgresServer
    connections: int


Seen = Finding | ServerDemand  # what stands by itself, and what is judged with that of others


class Check(Protocol):
    """Looks at one thing, and changes nothing."""

    @property
    def matter(self) -> Subject:
        """What is looked at; who has no answer in time is told of by it."""

    def findings(self) -> AsyncGenerator[Seen, None]:
        """What was seen, each as soon as it is known: what comes later may hang.

        What can be expected to fail is a finding. Any exception is one, too, of the check itself.
        Cancellation leaves no connection behind. It may run in a process of its own, so that what
        it keeps for other checks is there for those of its group only.
        """
