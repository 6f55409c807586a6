"""A check of the doctor, and the results that it yields."""

from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass

from service.doctor.backends.postgres_server import PostgresServer
from service.doctor.finding import Finding, Subject


@dataclass(frozen=True, slots=True)
class ConnectionDemand:
    """Connections that one executor opens at a server; the address has no password."""

    address: str
    server: PostgresServer
    connections: int


CheckResult = Finding | ConnectionDemand  # all demands of a server make one finding at the end


@dataclass(frozen=True, slots=True)
class Check:
    """A subject, and the function that inspects it without changing anything.

    `inspect` yields each result as soon as it is known, since a later step may hang. Expected
    failures are findings; an exception is reported as a fault of the check itself. Cancellation
    closes all connections.
    """

    subject: Subject  # also named if the check times out
    inspect: Callable[[Subject], AsyncGenerator[CheckResult, None]]
    database: Hashable = None  # checks of one database run in one process, and share memory
