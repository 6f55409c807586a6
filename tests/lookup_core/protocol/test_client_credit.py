"""What a channel may still send, and what is worth sending."""

import pytest

from lookup_core.protocol.client_credit import MOST_LOOKUP_BYTES, ClientCredit


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
    credit.spend(1, records=80, size=0)

    assert credit.records_to_send(90) == 0
    assert credit.records_to_send(20) == 20
    credit.add(60, 0)
    assert credit.records_to_send(90) == 80


def test_nothing_waits_without_reason(credit: ClientCredit) -> None:
    """With nothing unanswered there is no more to wait for, however much there once was."""
    credit.spend(1, records=95, size=900)
    assert credit.records_to_send(50) == 0

    credit.settle(1)

    assert credit.records_to_send(50) == 5
    assert credit.records_within(50, 2000) == 2
    credit.check_invariants()


def test_lookup_ends_once(credit: ClientCredit) -> None:
    """Its last answer and a cancel that met it count as one end."""
    credit.spend(1, records=10, size=10)

    credit.settle(1)
    credit.settle(1)

    credit.check_invariants()
    assert (credit.records, credit.bytes) == (90, 990)


def test_bytes_limit_the_records(credit: ClientCredit) -> None:
    """Records are fewer in proportion when their bytes exceed the credit, but one at least."""
    assert credit.records_within(50, 2000) == 25
    assert credit.records_within(2, 900_000) == 1
    credit.spend(1, records=1, size=800)
    assert credit.records_within(50, 2000) == 0


def test_large_key_waits_for_full_credit(credit: ClientCredit) -> None:
    """While credit is out, a large key waits for it to come back."""
    credit.spend(1, records=1, size=300)

    assert credit.records_within(1, 900) == 0


def test_frames_are_bounded() -> None:
    """However much credit there is, one lookup leaves room for those of other channels."""
    credit = ClientCredit()
    credit.restart(10**6, 10 * MOST_LOOKUP_BYTES)

    assert credit.lookup_bytes == MOST_LOOKUP_BYTES
    assert credit.records_within(1000, 4 * MOST_LOOKUP_BYTES) == 250


def test_spending_beyond_credit_is_a_bug(credit: ClientCredit) -> None:
    """Credit never becomes negative."""
    with pytest.raises(AssertionError):
        credit.spend(1, records=101, size=0)
    with pytest.raises(AssertionError):
        credit.spend(1, records=1, size=1001)


def test_restart_forgets_what_was(credit: ClientCredit) -> None:
    """A new connection begins with what it grants."""
    credit.spend(1, records=90, size=900)

    credit.restart(10, 50)

    assert (credit.records, credit.bytes, credit.exclusive_bytes) == (10, 50, 50)
    assert credit.records_to_send(100) == 10
    credit.check_invariants()
