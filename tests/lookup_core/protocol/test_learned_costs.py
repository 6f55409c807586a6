"""What a new channel starts with."""

from lookup_core.protocol.lookup_scheduler import Costs, LearnedCosts, Quantum


def learn(costs: Costs) -> None:
    """Rows are small, and quick to find."""
    costs.size.on_rows(1, 10)
    costs.pace.on_chunk(400, 0.0001)


def seen(costs: Costs) -> tuple[int, int]:
    """What it would ask for, and reserve."""
    return costs.pace.records, costs.size.record_bytes


def test_newcomer_starts_where_the_newest_is() -> None:
    """What the channel before has learned until now need not be learned again."""
    learned = LearnedCosts()
    first = learned.newcomer("customers")
    learn(first)

    assert seen(learned.newcomer("customers")) == seen(first) != seen(Costs())


def test_channels_learn_apart() -> None:
    """What one of them finds from now on says nothing about the other."""
    learned = LearnedCosts()
    first, second = learned.newcomer("customers"), learned.newcomer("customers")

    learn(second)

    assert seen(first) == seen(Costs())


def test_dimensions_share_nothing() -> None:
    """Another dimension has other rows."""
    learned = LearnedCosts()
    learn(learned.newcomer("customers"))

    assert seen(learned.newcomer("orders")) == (Quantum().records, Costs().size.record_bytes)
