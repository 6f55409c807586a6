"""The vitals of the process are told as they are when somebody asks."""

from service.http.routes.status import ProcessStatistics


def test_figures_are_of_now() -> None:
    """Uptime counts from the start; memory and lag are asked for."""
    vitals = ProcessStatistics(
        1_000, resident_bytes=lambda: 300, lag_s=lambda: 0.25, clock=lambda: 12.5, started_at=10.0
    )

    assert vitals.told() == {
        "uptime_s": 2.5,
        "memory": {"resident_bytes": 300, "limit_bytes": 1_000},
        "event_loop_lag_s": 0.25,
    }


def test_unknown_memory_is_null() -> None:
    """Before it was read for the first time it is not nothing."""
    assert ProcessStatistics().told()["memory"]["resident_bytes"] is None
