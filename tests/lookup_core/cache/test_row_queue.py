"""The queues' names."""

from lookup_core.cache.segments import RowQueue


def test_queues_are_those_of_the_paper() -> None:
    """Rows stand in a small and a main queue, absences apart."""
    assert [queue.value for queue in RowQueue] == ["small", "main", "absent"]
