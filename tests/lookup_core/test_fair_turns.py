"""Fair turns: deficit round robin over names."""

from lookup_core.fair_turns import FairTurns


def spent(turns: FairTurns[str], wanted: dict[str, list[int]], *, turn: int) -> list[str]:
    """Who spends how much, in this order, if each name spends these counts one by one."""
    found = []
    while len(turns):
        name = turns.current
        count = min(wanted[name].pop(0), turns.allowance(turn))
        turns.spend(count)
        found.append(f"{name}{count}")
        if not wanted[name]:
            turns.leave(name)
    return found


def test_names_take_turns() -> None:
    """A turn ends when it is spent; without others the next one follows at once."""
    turns = FairTurns[str]()
    for name in ("a", "b", "a"):
        turns.enter(name)

    found = spent(turns, {"a": [4, 2, 9, 3, 1], "b": [6, 1]}, turn=6)

    assert found == ["a4", "a2", "b6", "a6", "b1", "a3", "a1"]


def test_name_that_enters_first_has_a_new_turn() -> None:
    """Names come before all others; who leaves loses the rest of a turn."""
    turns = FairTurns[str]()
    for name in ("a", "b"):
        turns.enter(name)
    rest = [turns.allowance(6)]
    turns.spend(4)
    rest.append(turns.allowance(6))
    turns.leave("a")
    turns.leave("a")
    turns.enter_first(["c", "a"])

    assert ("a" in turns, "d" in turns) == (True, False)
    assert spent(turns, {"a": [6, 1], "b": [1], "c": [9, 1]}, turn=6) == [
        "c6",
        "a6",
        "b1",
        "c1",
        "a1",
    ]
    assert rest == [6, 2]


def test_turn_may_be_overspent() -> None:
    """Who spends more than the rest of a turn ends it, and owes nothing."""
    turns = FairTurns[str]()
    turns.enter("a")
    turns.allowance(6)
    turns.spend(9)

    assert turns.allowance(6) == 6
