"""Port of the doctor's checks, and the results that a check yields."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from service.doctor.backends.postgres_server import PostgresServer
from service.doctor.finding import Finding, Subject


@dataclass(frozen=True, slots=True)
class ConnectionDemand:
    """Connections that one executor opens at a server; the address has no password."""

    address: str
    server: PostgresServer
    connections: int


CheckResult = Finding | ConnectionDemand  # all demands of a server make one finding at the end


class Check(Protocol):
    """Inspects one subject and changes nothing."""

    @property
    def subject(self) -> Subject:
        """Subject of the check, also named when the check times out."""

    def findings(self) -> AsyncGenerator[CheckResult, None]:
        """Yield each result as soon as it is known, since a later step may hang.

        Expected failures are findings. An exception is reported as a fault of the check itself.
        Cancellation closes all connections. Checks may run in separate processes: only those of
        one group share memory.
        """
