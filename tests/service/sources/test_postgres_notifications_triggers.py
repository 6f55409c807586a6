"""What the catalog's rows say of the triggers of a table; `tests/integration` asks a server."""

import pytest

from lookup_core.dimension_schema import TableOrigin
from service.connectors.postgres.triggers import PostgresNotificationsTriggers, TriggerNames

NAMES = TriggerNames("told_1f", {"insert": "told_insert", "delete": "told_delete"})
ROWS = [("told_insert", "16400 700"), ("told_delete", "16401 700")]
REMEDY = "run what `python -m service gen-triggers customers` prints"
DOUBT = "its triggers were made anew, or disabled for a while, so that changes are lost"


@pytest.fixture
def triggers() -> PostgresNotificationsTriggers:
    """Two triggers, at which nobody has looked yet."""
    origin = TableOrigin("shop", "Customers", table_id=16385)
    return PostgresNotificationsTriggers(
        origin, NAMES, script="python -m service gen-triggers customers"
    )


def test_catalog_is_asked_by_number_and_name(triggers: PostgresNotificationsTriggers) -> None:
    """The described table, as long as it has its name; and what its triggers are called."""
    names = ["told_insert", "told_delete"]

    assert triggers.arguments == (16385, "shop", "Customers", "told_1f", names)


def test_all_is_well_with_all_triggers(triggers: PostgresNotificationsTriggers) -> None:
    """As long as the same triggers are there, in whatever order, changes are told."""
    assert [triggers.fault(rows) for rows in (ROWS, ROWS[::-1], ROWS)] == [None] * 3


@pytest.mark.parametrize(
    ("rows", "missing"),
    [([(None, None)], "told_insert, told_delete"), (ROWS[:1], "told_delete")],
)
def test_missing_triggers_are_named(
    triggers: PostgresNotificationsTriggers, rows: list[tuple[str, str]], missing: str
) -> None:
    """Those that are not there are told with what makes them, at whichever look."""
    expected = f"no trigger {missing}, always enabled, tells its changes; {REMEDY}"

    assert [triggers.fault(rows), triggers.fault(ROWS), triggers.fault(rows)] == [
        *(expected, None, expected)
    ]


def test_other_triggers_tell_of_a_gap(triggers: PostgresNotificationsTriggers) -> None:
    """Between two looks there may have been none: changes of that time were told by nobody."""
    triggers.fault(ROWS)

    assert triggers.fault([ROWS[0], ("told_delete", "16401 702")]) == DOUBT


def test_another_table_is_not_looked_at(triggers: PostgresNotificationsTriggers) -> None:
    """Where the described table is gone or has lost its name, triggers are of no account."""
    expected = "the table is gone, or another one has its name; it is described anew soon"

    assert triggers.fault([]) == expected
