"""Keys that are kept out for a while."""

from lookup_core.protection.quarantine import Quarantine


def test_key_is_kept_out_for_a_while() -> None:
    """For 30 s, then no longer; others never."""
    quarantine = Quarantine()
    quarantine.add(b"bad", 10.0)

    assert quarantine.is_in([b"good", b"bad"], 39.9).tolist() == [False, True]
    assert (quarantine.until(b"bad", 39.9), quarantine.until(b"good", 39.9)) == (40.0, None)
    assert quarantine.until(b"bad", 40.0) is None
    assert quarantine.is_in([b"bad"], 40.0).tolist() == [False]
    assert len(quarantine) == 0


def test_refusal_may_be_renewed() -> None:
    """A key that is refused once more is kept out from then on."""
    quarantine = Quarantine()
    quarantine.add(1, 0.0)
    quarantine.add(2, 10.0)
    quarantine.add(1, 20.0)

    assert quarantine.is_in([1, 2], 45.0).tolist() == [True, False]


def test_oldest_goes_first() -> None:
    """There is room for 10,000 keys; one more lets the oldest in again."""
    quarantine = Quarantine()
    for key in range(10_001):
        quarantine.add(key, 0.0)

    assert len(quarantine) == 10_000
    assert quarantine.is_in([0, 1, 10_000], 1.0).tolist() == [False, True, True]


def test_keys_can_be_let_in_again() -> None:
    """Single ones or all; a key that is not kept out does not matter."""
    quarantine = Quarantine()
    quarantine.remove([9])
    for key in (1, 2, 3):
        quarantine.add(key, 0.0)

    quarantine.remove([1, 9])
    assert quarantine.is_in([1, 2, 3], 1.0).tolist() == [False, True, True]
    quarantine.clear()
    assert quarantine.is_in([1, 2, 3], 1.0).tolist() == [False, False, False]
