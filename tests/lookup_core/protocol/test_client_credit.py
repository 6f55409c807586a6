"""What a channel may still send, and what is worth sending."""

import pytest

from lookup_core.errors import InvalidRequest
from lookup_core.protocol.client_credit import ClientCredit


@pytest.fixture
def credit() -> ClientCredit:
    """A fresh channel's credit."""
    credit = ClientCredit()
    credit.restart(100, 1000)
    return credit


def test_all_that_fits_is_sent(credit: ClientCredit) -> None:
    """Never more than there is, and never more than waits."""
    assert credit.records_to_send(40) == 40
    assert credit.records_to_send(250) == 100


def test_slivers_wait_for_more(credit: ClientCredit) -> None:
    """A small rest of the credit is not spent on a part of what waits; on the whole it is."""
    credit.spend(80, 0)

    assert credit.records_to_send(50) == 0
    assert credit.records_to_send(20) == 20
    credit.add(5, 0)
    assert credit.records_to_send(50) == 25


def test_bytes_limit_the_records(credit: ClientCredit) -> None:
    """Records are fewer in proportion when their bytes exceed the credit, but one at least."""
    assert credit.records_within(50, 2000) == 25
    assert credit.records_within(2, 900_000) == 1
    credit.spend(0, 800)
    assert credit.records_within(50, 2000) == 0


def test_key_beyond_all_credit_is_refused(credit: ClientCredit) -> None:
    """A single key that can never be sent is an error, not an endless wait."""
    with pytest.raises(InvalidRequest, match="1001 bytes"):
        credit.records_within(1, 1001)


def test_large_key_waits_for_full_credit(credit: ClientCredit) -> None:
    """While credit is out, a large key waits for it to come back."""
    credit.spend(1, 300)

    assert credit.records_within(1, 900) == 0


def test_spending_beyond_credit_is_a_bug(credit: ClientCredit) -> None:
    """Credit never becomes negative."""
    with pytest.raises(AssertionError):
        credit.spend(101, 0)


def test_restart_forgets_what_was(credit: ClientCredit) -> None:
    """A new connection begins with what it grants."""
    credit.spend(90, 900)

    credit.restart(10, 50)

    assert (credit.records, credit.bytes) == (10, 50)
    assert credit.records_to_send(100) == 10
