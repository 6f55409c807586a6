"""What the dimensions of one address want of the server that it leads to, and what it has.

Judged in `connection_findings`, with the demands of all addresses that lead to the same server.
"""

from dataclasses import dataclass

from service.doctor.postgres_server import PostgresServer


@dataclass(frozen=True, slots=True)
class ServerDemand:
    """The connections of one executor; the address has no password."""

    address: str
    server: PostgresServer
    connections: int
