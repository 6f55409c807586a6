"""What one address wants of its server."""

import pickle

from service.doctor.backends.postgres_server import PostgresServer, Room
from service.doctor.check import ServerDemand
from service.doctor.sidecar.clock import ClockReading


def test_demand_is_told_to_another_process() -> None:
    """It is judged elsewhere than where the server was asked."""
    clock = ClockReading(0.0, 0.0, 0.0)
    demand = ServerDemand("h", PostgresServer(160004, "16.4", "r", "d", clock, Room()), 8)

    # Nobody else writes to that pipe.
    assert pickle.loads(pickle.dumps(demand)) == demand  # noqa: S301
