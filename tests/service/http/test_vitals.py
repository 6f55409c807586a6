"""The vitals of the process are told as they are when somebody asks."""

from service.http.vitals import Vitals


def test_figures_are_of_now() -> None:
    """Uptime counts from the start; memory and lag are asked for."""
    vitals = Vitals(
        1_000, resident_bytes=lambda: 300, lag_s=lambda: 0.25, clock=lambda: 12.5, started_at=10.0
    )

    assert vitals.told() == {
        "uptime_s": 2.5,
        "memory": {"resident_bytes": 300, "limit_bytes": 1_000},
        "event_loop_lag_s": 0.25,
    }


def test_unreadable_memory_is_null() -> None:
    """Without a free file descriptor the rest is told all the same."""

    def fail() -> int:
        raise OSError(24, "Too many open files")

    assert Vitals(resident_bytes=fail).told()["memory"]["resident_bytes"] is None
